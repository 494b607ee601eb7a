// What NVRTC says, right or wrong: the result, and behind it the log up to a form feed and the PTX that names the
// version.
#include <algorithm>

#include "backend/cuda/nvrtc.hpp"
#include "fuzz.hpp"
#include "jitgemm/error.hpp"

using namespace jitgemm;

namespace {

std::string said_log, said_ptx;
nvrtcResult said_result;

nvrtcResult give(const std::string& text, char* to) {
  std::copy(text.begin(), text.end(), to);
  to[text.size()] = '\0';
  return NVRTC_SUCCESS;
}

nvrtcResult size_of_text(const std::string& text, std::size_t* size) {
  *size = text.size() + 1;
  return NVRTC_SUCCESS;
}

cuda::NvrtcApi make_api() {
  cuda::NvrtcApi api;
  api.version = [](int* major, int* minor) { return *major = 13, *minor = 0, NVRTC_SUCCESS; };
  api.get_error_string = [](nvrtcResult) { return "an error"; };
  api.create_program = [](nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*) {
    return NVRTC_SUCCESS;
  };
  api.destroy_program = [](nvrtcProgram*) { return NVRTC_SUCCESS; };
  api.compile_program = [](nvrtcProgram, int, const char* const*) { return said_result; };
  api.get_program_log_size = [](nvrtcProgram, std::size_t* size) { return size_of_text(said_log, size); };
  api.get_program_log = [](nvrtcProgram, char* to) { return give(said_log, to); };
  api.get_cubin_size = [](nvrtcProgram, std::size_t* size) { return size_of_text(said_ptx, size); };
  api.get_cubin = [](nvrtcProgram, char* to) { return give(said_ptx, to); };
  api.get_ptx_size = api.get_cubin_size;
  api.get_ptx = api.get_cubin;
  return api;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes input(data, size);
  said_result = nvrtcResult(input.take<std::uint8_t>() % 13);
  const std::string_view text = input.rest();
  const std::size_t cut = std::min(text.find('\f'), text.size());
  said_log = text.substr(0, cut);
  said_ptx = text.substr(std::min(cut + 1, text.size()));

  const cuda::PtxasInfo info = cuda::parse_ptxas_info(said_log);
  fuzz::expect(info.registers >= 0 && info.spill_bytes >= 0 && info.static_smem_bytes >= 0, "counts are not negative");

  cuda::NvrtcApi api = make_api();
  api.name = cuda::exact_name(api);
  fuzz::expect(
      api.name.starts_with("nvrtc 13.0") && api.name.find_first_not_of("nvrtc 0123456789.") == std::string::npos,
      "a version is one");
  const KernelSource source{"text", "gemm", "sm_90a", "config"};
  try {
    const KernelBinary binary = cuda::compile(api, source);
    fuzz::expect(said_result == NVRTC_SUCCESS, "only success gives a kernel");
    fuzz::expect(binary.registers == info.registers, "the log's registers are the kernel's");
  } catch (const Error& error) {
    fuzz::expect(error.code() == ErrorCode::compile_failed || error.code() == ErrorCode::no_compiler ||
                     said_result == NVRTC_ERROR_OUT_OF_MEMORY,
                 "the error is about compiling");
    const std::string what = error.what();
    fuzz::expect(what.find('\n') == std::string::npos, "an error is one line");
  }
  return 0;
}
