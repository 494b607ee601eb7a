// The names that libcuda.so.1 and libnvrtc.so have, each for the function that fake_symbol() finds when somebody looks
// it up. Apart from what includes cuda.h, which declares them.

using Function = void();
Function* fake_symbol(const char* name);

#define FAKE_FUNCTION(name)                                         \
  extern "C" Function* find_##name() { return fake_symbol(#name); } \
  extern "C" __attribute__((visibility("default"), ifunc("find_" #name))) Function name;
#include "fake_functions.def"
