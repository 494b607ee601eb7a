// JITGEMM_TEMPLATES_DIR: gemm.cu.in as anybody may have edited it, the other templates empty.
#include <cstdlib>
#include <sstream>

#include "core/device_info.hpp"
#include "core/problem.hpp"
#include "fuzz.hpp"
#include "jit/source_generator.hpp"
#include "jit/templates.hpp"
#include "jitgemm/error.hpp"

using namespace jitgemm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool prepared = [] {
    std::filesystem::create_directory(fuzz::scratch() / "ptx");
    std::istringstream names(TEMPLATE_FILES);
    for (std::string name; std::getline(names, name, ':');) fuzz::write_scratch(name, "");
    return setenv("JITGEMM_TEMPLATES_DIR", fuzz::scratch().c_str(), 1) == 0;
  }();
  fuzz::expect(prepared, "the templates' folder is named");
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::write_scratch("gemm.cu.in", text);
  try {
    const KernelSource source = generate(normalise({.m = 64, .n = 64, .k = 64}), {}, device_info_for("sm_80"));
    if (text.find("${") == std::string_view::npos)
      fuzz::expect(source.text == without_includes(text), "what is no placeholder stays");
  } catch (const Error& error) {
    fuzz::expect(error.code() == ErrorCode::internal, "the error is about the template");
  }
  return 0;
}
