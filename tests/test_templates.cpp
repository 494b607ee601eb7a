#include "jit/templates.hpp"

#include <filesystem>

#include "catch.hpp"
#include "errors.hpp"
#include "jitgemm/error.hpp"
#include "util/atomic_file.hpp"

namespace jitgemm {

TEST_CASE("Each file of templates/ is embedded byte for byte", "[templates]") {
  const std::filesystem::path root = JITGEMM_SOURCE_DIR "/templates";
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const auto extension = entry.path().extension();
    if (extension != ".cuh" && extension != ".in") continue;
    const std::string name = entry.path().lexically_relative(root).string();
    INFO(name);
    CHECK(template_text(name) == read_file(entry.path()).value());
    ++files;
  }
  CHECK(files > 10);
}

TEST_CASE("An unknown template's name is an internal error", "[templates]") {
  CHECK(test::error_of([] { template_text("ptx/no_such_file.cuh"); }).code() == ErrorCode::internal);
}

}  // namespace jitgemm
