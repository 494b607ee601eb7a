#include "jit/templates.hpp"

#include <filesystem>

#include "catch.hpp"
#include "core/device_info.hpp"
#include "core/problem.hpp"
#include "core/problem_fields.hpp"
#include "errors.hpp"
#include "jit/source_generator.hpp"
#include "jitgemm/error.hpp"
#include "util/atomic_file.hpp"

namespace jitgemm {

TEST_CASE("Each file of templates/ is embedded byte for byte", "[templates]") {
  const std::filesystem::path root = JITGEMM_SOURCE_DIR "/templates";
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const auto extension = entry.path().extension();
    const std::string name = entry.path().lexically_relative(root).string();
    if ((extension != ".cuh" && extension != ".in") || name.starts_with("ide")) continue;  // for editors alone
    INFO(name);
    CHECK(template_text(name) == read_file(entry.path()).value());
    ++files;
  }
  CHECK(files > 10);
}

TEST_CASE("A kernel has no line of a template that is for editors", "[templates]") {
  CHECK(without_includes("// a\n#pragma once\n#include \"b.cuh\"\n\n#include JITGEMM_EMULATOR\n  c\n") ==
        "// a\n\n#include JITGEMM_EMULATOR\n  c\n");
  CHECK(without_includes("a\n#pragma once") == "a\n");
  CHECK(without_includes("a // #pragma once\n#include <b>") == "a // #pragma once\n#include <b>");
  CHECK(without_includes("").empty());

  const NormalProblem problem = normalise({.m = 64, .n = 64, .k = 64});
  const KernelConfig sm80{.block_m = 64, .block_n = 64, .block_k = 64, .stages = 3, .warps = 4};
  const KernelConfig sm90{.main_loop = MainLoop::sm90, .block_k = 64, .stages = 3, .warps = 8};
  for (const KernelSource& source :
       {generate(problem, sm80, device_info_for("sm_80")), generate(problem, sm90, device_info_for("sm_90a")),
        generate_packing(problem, sm90, device_info_for("sm_90a"))}) {
    INFO(source.entry);
    CHECK(source.text.find("jitgemm::device") != std::string::npos);
    CHECK(source.text.find("#pragma once") == std::string::npos);
    CHECK(source.text.find("#include \"") == std::string::npos);
  }
}

TEST_CASE("A kernel's scalars are the problem's, in the same order", "[templates]") {
  std::string names;
  for_each_scalar(
      [&names](const ProblemField& field, auto) { names.append(names.empty() ? "" : ", ").append(field.name); });
  CHECK_THAT(std::string(template_text("types.cuh")), Catch::Matchers::ContainsSubstring("  T " + names + ";"));

  Problem problem{.m = 64, .n = 64, .k = 64, .epilogue = {.activation = Activation::leaky_relu, .slope = 0}};
  const auto text = [&problem] { return generate(normalise(problem), {}, device_info_for("sm_80")).text; };
  CHECK_THAT(text(), Catch::Matchers::ContainsSubstring("NONZERO{true, false, true}"));
  const std::string any = text();
  problem.alpha = 0;
  CHECK(text() == any);  // one kernel, with or without alpha
  problem.beta = 1;
  CHECK_THAT(text(), Catch::Matchers::ContainsSubstring("NONZERO{true, true, true}"));
}

TEST_CASE("An unknown template's name is an internal error", "[templates]") {
  CHECK(test::error_of([] { template_text("ptx/no_such_file.cuh"); }).code() == ErrorCode::internal);
}

}  // namespace jitgemm
