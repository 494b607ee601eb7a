// The CSV of `jitgemm bench --resume`. The input is the whole file if it begins with a header; one line of it as
// `column=value` lines if it begins with a newline; else what follows the header.
#include <sstream>

#include "bench/record.hpp"
#include "bench/summary.hpp"
#include "common/text.hpp"
#include "fuzz.hpp"

using namespace jitgemm;

namespace {

/// The line with these columns, whatever other columns there are.
std::string line_with(std::string_view values) {
  std::string line;
  std::istringstream header(cli::csv_header());
  for (std::string name; std::getline(header, name, ',');) {
    if (!line.empty() || name != "m") line += ',';
    const std::string key = "\n" + name + "=";
    const std::size_t found = values.find(key);
    if (found == std::string_view::npos) continue;
    const std::string_view value = values.substr(found + key.size());
    line += value.substr(0, value.find('\n'));
  }
  return line + "\n";
}

std::string file_of(const std::string& input) {
  if (input.starts_with("m,n,k,")) return input;
  return cli::csv_header() + "\n" + (input.starts_with("\n") ? line_with(input) : input);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(fuzz::text_of(data, size));
  std::vector<cli::BenchRecord> records;
  try {
    records = cli::read_csv(fuzz::write_scratch("bench.csv", file_of(input)));
  } catch (const Error& error) {
    fuzz::expect(error.code() == ErrorCode::io, "the error is about the file");
    return 0;
  }
  cli::summary(records);
  cli::summary_json(records).dump();
  std::string printed = cli::csv_header() + "\n";
  for (const cli::BenchRecord& record : records) {
    cli::json_text(cli::to_json(record));
    const std::string line = cli::csv_line(record);
    fuzz::expect(line.find('\n') == std::string::npos, "a record is one line");
    printed += line + "\n";
  }
  const auto again = cli::read_csv(fuzz::write_scratch("again.csv", printed));
  fuzz::expect(again.size() == records.size(), "every record that is printed is read");
  for (std::size_t i = 0; i < again.size(); ++i)
    fuzz::expect(again[i].same_case(records[i]), "a record that is printed is of the same case when read");
  return 0;
}
