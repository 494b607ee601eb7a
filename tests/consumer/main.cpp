#include <jitgemm/jitgemm.hpp>

#include <cstdio>

int main() try {
  jitgemm::Context context({.device = jitgemm::Device::compile_only, .architecture = "sm_90a"});
  const jitgemm::Plan plan = context.plan({.m = 512, .n = 512, .k = 512});
  std::puts(jitgemm::to_string(plan.config).c_str());
  try {
    context.plan({.m = -1, .n = 512, .k = 512});
  } catch (const jitgemm::Error& error) {  // the type crosses the library's border
    return error.code() == jitgemm::ErrorCode::invalid_problem ? 0 : 1;
  }
  return 1;
} catch (const jitgemm::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
