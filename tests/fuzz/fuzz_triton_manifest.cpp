// The manifest of `jitgemm bench --triton-manifest`.
#include "fuzz.hpp"
#include "peers/triton.hpp"

using namespace jitgemm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto manifest = fuzz::write_scratch("manifest.json", fuzz::text_of(data, size));
  static const auto cubin = fuzz::write_scratch("kernel.cubin", "");
  try {
    const cli::TritonPeer peer(manifest);
    fuzz::expect(!peer.version().empty(), "what is read has a version");
  } catch (const Error& error) {
    fuzz::expect(error.code() == ErrorCode::io, "the error is about the file");
  }
  return 0;
}
