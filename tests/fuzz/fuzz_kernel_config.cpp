// A configuration as text: --config, the tuning database, candidates in results.
#include "fuzz.hpp"
#include "jitgemm/error.hpp"
#include "jitgemm/kernel_config.hpp"

using namespace jitgemm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  try {
    const KernelConfig config = parse_kernel_config(text);
    fuzz::expect(parse_kernel_config(to_string(config)) == config, "what is printed parses back");
  } catch (const Error& error) {
    fuzz::expect(error.code() == ErrorCode::invalid_config, "the error is about the configuration");
  }
  return 0;
}
