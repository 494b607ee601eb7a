// A file of `m n k` lines: --shapes.
#include "common/shapes.hpp"
#include "fuzz.hpp"
#include "jitgemm/error.hpp"

using namespace jitgemm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const auto file = fuzz::write_scratch("shapes.txt", text);
  try {
    const auto shapes = cli::read_shapes(file);
    fuzz::expect(!shapes.empty(), "no shapes is an error");
    std::string again;
    for (const cli::Shape& x : shapes)
      again += std::to_string(x.m) + " " + std::to_string(x.n) + " " + std::to_string(x.k) + "\n";
    const auto same = cli::read_shapes(fuzz::write_scratch("again.txt", again));
    fuzz::expect(same.size() == shapes.size(), "as many shapes");
    for (std::size_t i = 0; i < shapes.size(); ++i)
      fuzz::expect(same[i].m == shapes[i].m && same[i].n == shapes[i].n && same[i].k == shapes[i].k, "the same shapes");
  } catch (const Error& error) {
    fuzz::expect(error.code() == ErrorCode::io, "the error is about the file");
  }
  return 0;
}
