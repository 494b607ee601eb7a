#pragma once

#include <optional>
#include <stdexcept>
#include <string>

#include "c/values.hpp"
#include "jitgemm/jitgemm.h"
#include "jitgemm/jitgemm.hpp"

namespace jitgemm::test {

/// A status other than success as the Error of the same code, with the texts of the thread's last error; those that no
/// ErrorCode has as std::runtime_error.
inline void throw_unless_success(jitgemm_status status) {
  if (status == JITGEMM_STATUS_SUCCESS) return;
  if (jitgemm_last_error_status() != status) throw std::logic_error("the last error is another");
  const std::string message = jitgemm_last_error_message();
  if (status >= JITGEMM_STATUS_INTERRUPTED)
    throw std::runtime_error(std::string(jitgemm_status_name(status)) + ": " + message);
  throw Error(ErrorCode(status - 1), message)
      .with_problem(jitgemm_last_error_problem())
      .with_config(jitgemm_last_error_config())
      .with_call(jitgemm_last_error_call())
      .with_log(jitgemm_last_error_log());
}

/// Of a struct of the C interface, which has no padding: all that a call may have changed.
template <typename Struct>
std::string struct_bytes(const Struct& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// What get(buffer, capacity, needed) copies.
template <typename Get>
std::string text_of(Get get) {
  std::size_t needed = 0;
  throw_unless_success(get(nullptr, 0, &needed));
  std::string text(needed, '?');
  throw_unless_success(get(text.data(), needed, nullptr));
  return text;
}
/// Without its NUL, which must be there.
template <typename Get>
std::string line_of(Get get) {
  std::string text = text_of(get);
  if (text.empty() || text.back() != 0) throw std::logic_error("a text has no NUL at its end");
  text.pop_back();
  return text;
}

/// A struct of the C API with its defaults.
template <typename Struct, typename Init>
Struct made_by(Init init) {
  Struct made;
  throw_unless_success(init(&made));
  return made;
}

class CPlan {
 public:
  CPlan(jitgemm_context* context, const Problem& problem, const KernelConfig* config, bool compiled = false) {
    const jitgemm_problem asked = c::to_c(problem);
    const auto pinned = config ? std::optional(c::to_c(*config)) : std::nullopt;
    throw_unless_success(jitgemm_plan_create(context, &asked, pinned ? &*pinned : nullptr, &plan_));
    if (compiled) {
      const jitgemm_status status = jitgemm_plan_compile(plan_);
      if (status != JITGEMM_STATUS_SUCCESS) jitgemm_plan_destroy(plan_);
      throw_unless_success(status);
    }
    read();
  }
  explicit CPlan(jitgemm_plan* plan) : plan_(plan) { read(); }
  ~CPlan() { jitgemm_plan_destroy(plan_); }
  CPlan(const CPlan&) = delete;
  CPlan& operator=(const CPlan&) = delete;
  operator jitgemm_plan*() const { return plan_; }

  std::string source() const {
    return line_of([&](char* b, std::size_t c, std::size_t* n) { return jitgemm_plan_source(plan_, b, c, n); });
  }

  double measured_us = 0;
  int registers = 0;

 private:
  void read() {
    auto info = made_by<jitgemm_plan_info>(jitgemm_plan_info_init);
    throw_unless_success(jitgemm_plan_get_info(plan_, &info));
    measured_us = info.measured_us;
    registers = info.registers;
  }
  jitgemm_plan* plan_ = nullptr;
};

/// The C functions with the face of a Context, so that a test can hold both to the same.
class CContext {
 public:
  explicit CContext(const ContextOptions& options) {
    jitgemm_options asked = c::to_c(options);
    asked.architecture = options.architecture.c_str();
    if (options.cache_dir) asked.cache_dir = options.cache_dir->c_str();
    throw_unless_success(jitgemm_context_create(&asked, &context_));
  }
  ~CContext() { jitgemm_context_destroy(context_); }
  CContext(const CContext&) = delete;
  CContext& operator=(const CContext&) = delete;
  operator jitgemm_context*() const { return context_; }

  void gemm(const Problem& problem, const Operands& operands, Stream stream = nullptr) {
    run(problem, operands, stream, nullptr);
  }
  void gemm(const Problem& problem, const Operands& operands, Stream stream, const KernelConfig& config) {
    const jitgemm_config pinned = c::to_c(config);
    run(problem, operands, stream, &pinned);
  }
  CPlan plan(const Problem& problem) { return {context_, problem, nullptr}; }
  CPlan plan(const Problem& problem, const KernelConfig& config) { return {context_, problem, &config}; }
  CPlan compile(const Problem& problem) { return {context_, problem, nullptr, true}; }
  CPlan compile(const Problem& problem, const KernelConfig& config) { return {context_, problem, &config, true}; }
  std::string source(const Problem& problem) { return plan(problem).source(); }
  std::size_t workspace_size(const Problem& problem, const KernelConfig& config) {
    const jitgemm_problem asked = c::to_c(problem);
    const jitgemm_config pinned = c::to_c(config);
    std::size_t bytes = 0;
    throw_unless_success(jitgemm_workspace_size(context_, &asked, &pinned, &bytes));
    return bytes;
  }
  struct Tuned {
    CPlan plan;
  };
  Tuned tune(const Problem& problem) {
    const jitgemm_problem asked = c::to_c(problem);
    jitgemm_tune_report* report = nullptr;
    throw_unless_success(jitgemm_tune(context_, &asked, nullptr, nullptr, &report));
    jitgemm_plan* plan = nullptr;
    const jitgemm_status status = jitgemm_tune_report_plan(report, &plan);
    jitgemm_tune_report_destroy(report);
    throw_unless_success(status);
    return {CPlan(plan)};
  }
  void trim() { throw_unless_success(jitgemm_trim(context_)); }
  jitgemm_device device() const {
    auto device = made_by<jitgemm_device>(jitgemm_device_init);
    throw_unless_success(jitgemm_get_device(context_, &device));
    return device;
  }
  jitgemm_counters counters() const {
    auto counters = made_by<jitgemm_counters>(jitgemm_counters_init);
    throw_unless_success(jitgemm_get_counters(context_, &counters));
    return counters;
  }

 private:
  void run(const Problem& problem, const Operands& operands, Stream stream, const jitgemm_config* config) {
    const jitgemm_problem asked = c::to_c(problem);
    const jitgemm_operands memory = c::to_c(operands);
    throw_unless_success(jitgemm_gemm(context_, &asked, config, &memory, stream));
  }

  jitgemm_context* context_ = nullptr;
};

/// cuda_devices() by way of either.
template <typename AnyContext>
std::size_t count_devices() {
  return cuda_devices().size();
}
template <>
inline std::size_t count_devices<CContext>() {
  std::size_t count = 0;
  throw_unless_success(jitgemm_cuda_device_count(&count));
  return count;
}

}  // namespace jitgemm::test
