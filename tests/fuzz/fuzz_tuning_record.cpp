// One line of the tuning database.
#include "fuzz.hpp"
#include "tune/tuning_db.hpp"

using namespace jitgemm;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string line(fuzz::text_of(data, size));
  std::string why;
  const auto record = parse_json_line(line, &why);
  if (!record) {
    fuzz::expect(!why.empty(), "a refused line has a reason");
    return 0;
  }
  const std::string printed = to_json_line(*record);
  fuzz::expect(printed.find('\n') == std::string::npos, "a record is one line");
  const auto again = parse_json_line(printed);
  fuzz::expect(again && to_json_line(*again) == printed, "what is printed parses back");
  return 0;
}
