#pragma once

/// Marks what libjitgemm.so shows; everything else is hidden.
#define JITGEMM_EXPORT __attribute__((visibility("default")))
