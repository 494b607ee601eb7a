// The whole command line, one word a line, on a device that takes problems but has no memory, so that every command
// stops where its work would begin. JITGEMM_TUNING=... as the first line sets that variable.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <vector>

#include "backend/backend.hpp"
#include "command/command_line.hpp"
#include "fuzz.hpp"
#include "jitgemm/jitgemm.hpp"

namespace jitgemm {
namespace {

class IdleBackend final : public Backend {
 public:
  explicit IdleBackend(const EmulatorOptions& options) {
    device_ = device_info_for(options.architecture.empty() ? "sm_90a" : options.architecture);
    if (options.sm_count < 1 || options.sm_count > 1024) throw Error(ErrorCode::invalid_option, "1 to 1024 SMs");
    device_.name = "emulator";
    device_.sm_count = options.sm_count;
    device_.emulated = true;
  }

  const DeviceInfo& device() const override { return device_; }
  std::string compiler_kind() const override { return "idle"; }
  std::string compiler_version() override { stop(ErrorCode::no_compiler); }
  KernelBinary compile(const KernelSource&) override { stop(ErrorCode::no_compiler); }
  std::unique_ptr<LoadedKernel> load(const KernelBinary&, std::size_t) override { stop(ErrorCode::load_failed); }
  void launch(const LoadedKernel&, const LaunchGrid&, ArgumentBytes, Stream) override {
    stop(ErrorCode::launch_failed);
  }
  bool can_be_resident(const LoadedKernel&, const LaunchGrid&, Stream) override { stop(ErrorCode::launch_failed); }
  device::TensorMap encode_tensor_map(const TensorMapSpec&) override { stop(ErrorCode::launch_failed); }
  void* allocate(std::size_t) override { stop(ErrorCode::out_of_memory); }
  void release(void*) noexcept override {}
  void fill(void*, unsigned char, std::size_t) override {}
  void copy_to_device(void*, const void*, std::size_t) override {}
  void copy_to_host(void*, const void*, std::size_t) override {}
  void copy_rows(void*, std::size_t, const void*, std::size_t, std::size_t, std::size_t, Stream) override {}
  void fill_random(void*, std::int64_t, DataType, std::uint64_t) override {}
  std::uint64_t stream_id(Stream) override { return 0; }
  CaptureStatus capture_status(Stream) override { return CaptureStatus::none; }
  void synchronize(Stream) override {}
  bool is_idle(Stream) override { return true; }
  Stream create_stream() override { return nullptr; }
  void destroy_stream(Stream) noexcept override {}
  void* create_event() override { stop(ErrorCode::out_of_memory); }
  void record_event(void*, Stream) override {}
  double elapsed_us(void*, void*) override { return 0; }
  bool has_passed(void*) override { return true; }
  void wait_event(void*, Stream) override {}
  void destroy_event(void*) noexcept override {}
  std::unique_ptr<RelaxedCapture> relax_capture() override { return std::make_unique<RelaxedCapture>(); }
  void check_pointer(const void*, const char*, Stream) override {}

 private:
  [[noreturn]] static void stop(ErrorCode code) { throw Error(code, "the fuzzer's device does no work"); }
  DeviceInfo device_;
};

}  // namespace

// In place of the library's: a member of a static library that nothing needs is not linked.
std::unique_ptr<Backend> make_cuda_backend(bool, int) { throw Error(ErrorCode::no_device, "no device"); }
std::vector<DeviceDescription> cuda_devices() { return {}; }
std::unique_ptr<Backend> make_emulator_backend(const EmulatorOptions& options) {
  return std::make_unique<IdleBackend>(options);
}

namespace fuzz {
namespace {

namespace fs = std::filesystem;

/// What is printed while it lives, by C++ streams or by stdio, whose stdout and stderr glibc lets one assign.
class Captured {
 public:
  Captured() : old_stdout_(stdout), old_stderr_(stderr), old_cout_(std::cout.rdbuf()), old_cerr_(std::cerr.rdbuf()) {
    stdout = open_memstream(&out_, &out_bytes_);
    stderr = open_memstream(&err_, &err_bytes_);
    std::cout.rdbuf(cout_.rdbuf());
    std::cerr.rdbuf(cerr_.rdbuf());
  }
  ~Captured() {
    end();
    std::free(out_);
    std::free(err_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  /// Ends it: what was printed on stderr.
  std::string end() {
    if (stdout != old_stdout_) {
      std::fclose(stdout);
      std::fclose(stderr);
      stdout = old_stdout_;
      stderr = old_stderr_;
      std::cout.rdbuf(old_cout_);
      std::cerr.rdbuf(old_cerr_);
    }
    return std::string(err_, err_bytes_) + cerr_.str();
  }

 private:
  FILE *old_stdout_, *old_stderr_;
  std::streambuf *old_cout_, *old_cerr_;
  char *out_ = nullptr, *err_ = nullptr;
  std::size_t out_bytes_ = 0, err_bytes_ = 0;
  std::ostringstream cout_, cerr_;
};

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    std::string word(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    for (char& c : word) c = c == '/' ? '_' : c == '\0' ? '?' : c;  // no path leads out of the current directory
    words.push_back(word == ".." ? "__" : std::move(word));
  }
  return words;
}

void check_errors(int status, std::string_view text) {
  const auto is_note = [&text] {
    return text.starts_with("jitgemm: no GPU found") || text.starts_with("jitgemm: not tuned: ");
  };
  while (is_note()) text.remove_prefix(std::min(text.find('\n') + 1, text.size()));
  if (status == 0) return expect(text.empty(), "success has no errors");
  expect(status == 1 || status == 2, "a status is 0, 1 or 2");
  expect(text.starts_with("jitgemm: error: "), "an error says whose it is");
  expect(text.find('\n') == text.size() - 1, "an error is one line");
}

}  // namespace
}  // namespace fuzz
}  // namespace jitgemm

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace jitgemm::fuzz;
  const fs::path directory = scratch() / "here", before = fs::current_path();
  fs::remove_all(directory);
  fs::create_directory(directory);
  write_scratch("here/shapes.txt", "64 64 64\n100 33 17  # two\n");

  std::vector<std::string> words = words_of(text_of(data, size));
  words.insert(words.begin(), "jitgemm");
  unsetenv("JITGEMM_TUNING");
  if (constexpr std::string_view name = "JITGEMM_TUNING="; words.size() > 1 && words[1].starts_with(name)) {
    setenv("JITGEMM_TUNING", words[1].c_str() + name.size(), 1);
    words.erase(words.begin() + 1);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  fs::current_path(directory);
  Captured captured;
  const int status = jitgemm::cli::run_command_line(int(argv.size()) - 1, argv.data());
  const std::string errors = captured.end();
  fs::current_path(before);
  check_errors(status, errors);
  return 0;
}
