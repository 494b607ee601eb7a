// A problem as text: --problem, and the column of that name in a CSV.
#include "common/options.hpp"
#include "core/problem.hpp"
#include "fuzz.hpp"

using namespace jitgemm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Problem problem;
  try {
    problem = parse_problem(std::string(fuzz::text_of(data, size)));
  } catch (const Error& error) {
    fuzz::expect(error.code() == ErrorCode::invalid_problem, "the error is about the problem");
    return 0;
  }
  try {
    const NormalProblem normalised = normalise(problem);
    const NormalProblem again = normalise(parse_problem(to_string(problem)));
    fuzz::expect(equal(again, normalised), "what is printed parses back");
    fuzz::expect(equal(normalise(parse_problem(to_string(normalised))), normalised),
                 "what is printed of a normalised problem parses back");
  } catch (const Error& error) {
    fuzz::expect(error.code() == ErrorCode::invalid_problem, "the error is about the problem");
  }
  return 0;
}
