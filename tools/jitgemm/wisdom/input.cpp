#include "wisdom/input.hpp"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "jitgemm/error.hpp"
#include "jitgemm/version.hpp"
#include "util/errno_text.hpp"

namespace jitgemm::cli {

Wisdom read_wisdom_or_database(const std::filesystem::path& file) {
  if (file.extension() != ".jsonl") return read_wisdom(file);
  if (access(file.c_str(), R_OK) != 0) {
    throw Error(ErrorCode::io, "cannot read " + file.string() + ": " + errno_text(errno) +
                                   "; give a wisdom file or a tuning database");
  }
  Wisdom wisdom;
  wisdom.library = JITGEMM_VERSION;
  wisdom.records = read_records(file);
  return wisdom;
}

}  // namespace jitgemm::cli
