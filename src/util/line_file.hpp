#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace jitgemm {

/// A text file of lines that processes append to while others read it. It is only ever appended to: what a killed
/// writer or a full disk has cut short stays, on a line of its own. Not thread-safe but for append(). Nothing throws
/// for a file that cannot be used, as one that is not to be trusted, see open_trusted().
class LineFile {
 public:
  static constexpr std::size_t most_line_bytes = 64 << 10;     ///< longer lines are not kept in memory
  static constexpr std::size_t most_unread_bytes = 256 << 20;  ///< more than this: the end of the file, from a line on

  /// mode: of a file that is not there yet, less the umask; its directory is then made for the same people.
  explicit LineFile(std::filesystem::path path, mode_t mode = 0600) : path_(std::move(path)), mode_(mode) {}
  /// One that a user names, to read: whoever may have written it.
  static LineFile of_anyone(std::filesystem::path path);
  const std::filesystem::path& path() const { return path_; }

  /// All lines with one write, under a lock if that can be had, and on the disk on return. False, with the reason in
  /// *why, if not all of them are.
  bool append(const std::vector<std::string>& lines, std::string* why) const;
  /// The same of lines that depend on what the file has: `lines` is called under the lock.
  bool append(const std::function<std::vector<std::string>()>& lines, std::string* why) const;

  struct Line {
    std::string_view text;          ///< without its end, LF or CR LF
    std::int64_t number;            ///< from 1
    bool ended = true;              ///< false: the last, which may be half written; it comes again when it has grown
    const char* skipped = nullptr;  ///< why there is no text
  };
  /// Visits the lines that it has not visited before. `restart` is called first if this is another file than before, or
  /// one that has been rewritten, or none: all lines come again. False, with the reason in *why, if it cannot be read.
  bool read(const std::function<void()>& restart, const std::function<void(const Line&)>& visit, std::string* why);

 private:
  struct Position {
    dev_t device = 0;
    ino_t inode = 0;            // 0: no file yet
    off_t size = 0;             // of the file, when last read
    off_t offset = 0;           // of the first line that is not visited for good
    std::int64_t lines = 0;     // before offset
    bool in_long_line = false;  // offset is within a line that is skipped
    std::string before;         // the last bytes before offset
  };
  bool continues(int descriptor, off_t size) const;
  bool read_on(int descriptor, off_t size, const std::function<void(const Line&)>& visit);

  std::filesystem::path path_;
  mode_t mode_;
  bool trusted_ = true;
  Position position_;
};

}  // namespace jitgemm
