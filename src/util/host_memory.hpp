#pragma once

namespace jitgemm {

/// Whether this process can read the byte at `address`. Reads it in the kernel, so nothing happens if not.
bool host_can_read(const void* address);

}  // namespace jitgemm
