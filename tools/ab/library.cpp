// One build of the library behind the C interface that ab.cpp times. AB_NAME is jitgemm_ab_old or jitgemm_ab_new.
#include "library.hpp"

#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "jitgemm/jitgemm.hpp"

namespace {

thread_local std::string last_error;

template <typename Body>
auto guarded(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    last_error = error.what();
    return {};
  }
}

/// Before operands were values, a problem had their fields in a row.
template <typename Problem>
void set_operands(Problem& problem, const AbProblem& given) {
  const auto type = jitgemm::parse_data_type(given.type).value(), d = jitgemm::parse_data_type(given.type_d).value();
  const auto a = jitgemm::parse_layout(given.layout_a).value(), b = jitgemm::parse_layout(given.layout_b).value();
  if constexpr (requires { problem.layout_a; }) {
    problem.a = problem.b = type;
    problem.d = d;
    problem.layout_a = a;
    problem.layout_b = b;
  } else {
    problem.a = {.type = type, .layout = a};
    problem.b = {.type = type, .layout = b};
    problem.d = {.type = d};
  }
}

jitgemm::Problem problem_of(const AbProblem& given) {
  jitgemm::Problem problem;
  problem.m = given.m;
  problem.n = given.n;
  problem.k = given.k;
  set_operands(problem, given);
  problem.accumulation = jitgemm::parse_accumulation(given.accumulation).value();
  return problem;
}

/// A configuration as the old library wrote it: swapped operands had another name.
jitgemm::KernelConfig config_of(std::string text) {
  constexpr std::string_view old_name = "operands=swapped", name = "swap_ab=true";
  try {
    return jitgemm::parse_kernel_config(text);
  } catch (const jitgemm::Error&) {
    const auto at = text.find(old_name);
    if (at == std::string::npos) throw;
    return jitgemm::parse_kernel_config(text.replace(at, old_name.size(), name));
  }
}

struct Call {
  jitgemm::Context& context;
  jitgemm::Problem problem;
  std::optional<jitgemm::KernelConfig> config;
};

const char* version() { return JITGEMM_VERSION; }
const char* error() { return last_error.c_str(); }

void* open(const char* device, const char* cache_dir) {
  return guarded([&]() -> void* {
    jitgemm::ContextOptions options;
    options.device = std::strcmp(device, "emulator") == 0 ? jitgemm::Device::emulator : jitgemm::Device::cuda;
    options.tuning = jitgemm::Tuning::off;
    options.cache_dir = cache_dir;
    return new jitgemm::Context(options);
  });
}

void close(void* context) { delete static_cast<jitgemm::Context*>(context); }

bool choose(void* context, const AbProblem* problem, char* config, std::size_t bytes) {
  return guarded([&] {
    const std::string text = to_string(static_cast<jitgemm::Context*>(context)->plan(problem_of(*problem)).config);
    if (text.size() >= bytes) throw std::length_error("the configuration is longer than its buffer");
    std::strcpy(config, text.c_str());
    return true;
  });
}

void* prepare(void* context, const AbProblem* problem, const char* config) {
  return guarded([&]() -> void* {
    Call call{*static_cast<jitgemm::Context*>(context), problem_of(*problem), std::nullopt};
    if (*config) call.config = config_of(config);
    call.config ? call.context.compile(call.problem, *call.config) : call.context.compile(call.problem);
    return new Call(call);
  });
}

void forget(void* call) { delete static_cast<Call*>(call); }

std::size_t workspace_size(void* call) {
  return guarded([&] {
    const Call& its = *static_cast<Call*>(call);
    return its.config ? its.context.workspace_size(its.problem, *its.config) : its.context.workspace_size(its.problem);
  });
}

bool gemm(void* call, const AbOperands* given, void* stream) {
  return guarded([&] {
    const Call& its = *static_cast<Call*>(call);
    jitgemm::Operands operands;
    operands.a = given->a;
    operands.b = given->b;
    operands.d = given->d;
    operands.workspace = given->workspace;
    operands.workspace_bytes = given->workspace_bytes;
    const auto on = static_cast<jitgemm::Stream>(stream);
    its.config ? its.context.gemm(its.problem, operands, on, *its.config) : its.context.gemm(its.problem, operands, on);
    return true;
  });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const AbLibrary* AB_NAME() {
  static const AbLibrary library{version, error, open, close, choose, prepare, forget, workspace_size, gemm};
  return &library;
}
