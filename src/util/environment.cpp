#include "util/environment.hpp"

#include <cstdlib>
#include <map>
#include <mutex>

namespace jitgemm {
namespace {

struct Defaults {
  std::mutex mutex;
  std::map<std::string, std::string> values;
};
Defaults& defaults() {
  static Defaults& instance = *new Defaults;  // never destroyed: threads may ask while the process ends
  return instance;
}

}  // namespace

std::optional<std::string> environment(const char* name) {
  if (const char* value = ::secure_getenv(name); value != nullptr && *value != '\0') return value;
  const std::lock_guard lock(defaults().mutex);
  const auto found = defaults().values.find(name);
  if (found == defaults().values.end()) return std::nullopt;
  return found->second;
}

std::filesystem::path temporary_folder(std::error_code& failed) {
  if (const char* folder = std::getenv("TMPDIR"); folder != nullptr && *folder == '\0') return "/tmp";
  return std::filesystem::temp_directory_path(failed);
}

void set_environment_default(const std::string& name, const std::string& value) {
  const std::lock_guard lock(defaults().mutex);
  defaults().values.insert_or_assign(name, value);
}

}  // namespace jitgemm
