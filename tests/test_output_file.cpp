// Files that a user names: links, devices and pipes, modes.
#include <sys/stat.h>

#include <thread>

#include "catch.hpp"
#include "sandbox.hpp"
#include "util/atomic_file.hpp"
#include "util/output_file.hpp"

namespace jitgemm::test {
namespace {

namespace fs = std::filesystem;

int mode_of(const fs::path& path) { return int(fs::status(path).permissions()); }

int entries_of(const fs::path& directory) {
  return int(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("What a link leads to is replaced, and the link stays", "[output_file]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "file", link = directory.path() / "link", chain = directory.path() / "chain";
  fs::create_symlink("file", link);
  fs::create_symlink(link, chain);
  std::string why;
  for (const char* text : {"new", "over the new"}) {  // first, it leads to nothing
    REQUIRE(write_output(chain, text, &why));
    CHECK(fs::read_symlink(chain) == link);
    CHECK(fs::read_symlink(link) == "file");
    CHECK(file_text(file) == text);
  }
  CHECK(entries_of(directory.path()) == 3);

  const fs::path loop = directory.path() / "loop";
  fs::create_symlink("loop", loop);
  CHECK_FALSE(write_output(loop, "x", &why));
  CHECK(why == "Too many levels of symbolic links");
  CHECK(fs::is_symlink(loop));
}

TEST_CASE("A device or a pipe is written to and stays, a directory is an error", "[output_file]") {
  const TemporaryDirectory directory;
  std::string why;
  const fs::path fifo = directory.path() / "fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  std::string read;
  std::thread reader([&] { read = file_text(fifo); });
  const bool written = write_output(fifo, "through the pipe", &why);
  reader.join();
  CHECK(written);
  CHECK(fs::is_fifo(fifo));
  CHECK(read == "through the pipe");

  // By a link: were it replaced, it would not be the machine's.
  const fs::path null = directory.path() / "null", full = directory.path() / "full";
  fs::create_symlink("/dev/null", null);
  fs::create_symlink("/dev/full", full);
  CHECK(write_output(null, "x", &why));
  CHECK(fs::is_character_file(null));
  CHECK_FALSE(write_output(full, "x", &why));
  CHECK(why == "No space left on device");
  CHECK(fs::is_character_file(full));

  CHECK_FALSE(write_output(directory.path(), "x", &why));
  CHECK(why == "Is a directory");
}

TEST_CASE("Standard output takes a file in its place, also where it is one", "[output_file]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "file";
  CHECK(wait_for(spawn([&] {
          expect(std::freopen(file.c_str(), "w", stdout) != nullptr, "stdout is a file");
          std::printf("before, ");
          for (const char* name : {"/dev/stdout", "/proc/self/fd/1"}) {
            std::string why;
            expect(write_output(name, "within, ", &why), why.c_str());
          }
          std::printf("after");
          std::fflush(stdout);
          return 0;
        })) == 0);
  CHECK(file_text(file) == "before, within, within, after");
}

TEST_CASE("A new file has the umask's mode, one that replaces an older its mode, a cache's is private",
          "[output_file]") {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "file";
  for (const auto& [mask, mode] : {std::pair(022, 0644), std::pair(027, 0640), std::pair(0, 0666)}) {
    const ScopedUmask umask{mode_t(mask)};
    REQUIRE(write_output(file, "new", nullptr));
    CHECK(mode_of(file) == mode);
    for (const int old : {0600, 0664, 0755}) {
      fs::permissions(file, fs::perms(old));
      REQUIRE(write_output(file, "newer", nullptr));
      CHECK(mode_of(file) == old);
    }
    fs::remove(file);
    REQUIRE(write_atomically(file, "private", nullptr));
    CHECK(mode_of(file) == 0600);
    fs::remove(file);
  }
}

}  // namespace jitgemm::test
