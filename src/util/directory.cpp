#include "util/directory.hpp"

#include <dirent.h>

#include <memory>
#include <string_view>

namespace jitgemm {

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  struct Close {
    void operator()(DIR* open) const { closedir(open); }
  };
  std::vector<std::string> names;
  const std::unique_ptr<DIR, Close> open(opendir(directory.c_str()));
  while (const dirent* entry = open ? readdir(open.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

}  // namespace jitgemm
