#include "c/handles.hpp"
#include "c/values.hpp"

using namespace jitgemm::c;

jitgemm_status jitgemm_cuda_device_count(std::size_t* count) {
  return guarded([&] { given(count, "count") = jitgemm::cuda_devices().size(); });
}

jitgemm_status jitgemm_cuda_device(std::size_t index, jitgemm_device* device) {
  return guarded([&] {
    const auto out = required(device);
    const std::vector<jitgemm::DeviceDescription> devices = jitgemm::cuda_devices();
    check_index(index, devices.size(), "CUDA devices");
    out.put(to_c(devices[index]));
  });
}

jitgemm_status jitgemm_context_create(const jitgemm_options* options, jitgemm_context** context) {
  return guarded([&] {
    given(context, "context");
    auto made = std::make_unique<jitgemm_context>();
    made->context = std::make_shared<jitgemm::Context>(options ? options_of(options) : jitgemm::ContextOptions{});
    put_handle(context, std::move(made));
  });
}

void jitgemm_context_destroy(jitgemm_context* context) { delete context; }

jitgemm_status jitgemm_gemm(jitgemm_context* context, const jitgemm_problem* problem, const jitgemm_config* config,
                            const jitgemm_operands* operands, jitgemm_stream stream) {
  return guarded([&] {
    jitgemm::Context& in = *given(context, "context").context;
    const jitgemm::Problem asked = problem_of(problem);
    const jitgemm::Operands memory = operands_of(operands);
    if (config)
      in.gemm(asked, memory, stream, config_of(config));
    else
      in.gemm(asked, memory, stream);
  });
}

jitgemm_status jitgemm_warm(jitgemm_context* context, const jitgemm_problem* problem) {
  return guarded([&] { given(context, "context").context->warm(problem_of(problem)); });
}

jitgemm_status jitgemm_workspace_size(jitgemm_context* context, const jitgemm_problem* problem,
                                      const jitgemm_config* config, std::size_t* bytes) {
  return guarded([&] {
    jitgemm::Context& in = *given(context, "context").context;
    const jitgemm::Problem asked = problem_of(problem);
    std::size_t& needed = given(bytes, "bytes");
    needed = config ? in.workspace_size(asked, config_of(config)) : in.workspace_size(asked);
  });
}

jitgemm_status jitgemm_trim(jitgemm_context* context) {
  return guarded([&] { given(context, "context").context->trim(); });
}

jitgemm_status jitgemm_check(jitgemm_context* context, jitgemm_stream stream) {
  return guarded([&] { given(context, "context").context->check(stream); });
}

jitgemm_status jitgemm_get_device(const jitgemm_context* context, jitgemm_device* device) {
  return guarded([&] {
    const auto out = required(device);
    out.put(to_c(given(context, "context").context->device()));
  });
}

jitgemm_status jitgemm_get_counters(const jitgemm_context* context, jitgemm_counters* counters) {
  return guarded([&] {
    const auto out = required(counters);
    out.put(to_c(given(context, "context").context->counters()));
  });
}
