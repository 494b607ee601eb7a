#include "backend/emulator/compiler.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <memory>

#include "backend/emulator/child_process.hpp"
#include "backend/emulator/device_text.hpp"
#include "backend/emulator/temporary_directory.hpp"
#include "core/data_types.hpp"
#include "core/epilogue_text.hpp"
#include "jitgemm/error.hpp"
#include "util/atomic_file.hpp"
#include "util/environment.hpp"
#include "util/errno_text.hpp"
#include "util/hash.hpp"
#include "util/log.hpp"

namespace jitgemm::emulator {

namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool with_asan = true;
#else
constexpr bool with_asan = false;
#endif
#if defined(__SANITIZE_THREAD__)
constexpr bool with_tsan = true;
#else
constexpr bool with_tsan = false;
#endif
#if defined(JITGEMM_UBSAN)
constexpr bool with_ubsan = true;
#else
constexpr bool with_ubsan = false;
#endif

/// "x86_64": shared objects of one are of no use on another, and machines of both may share a home.
std::string host_architecture() {
  utsname name;
  return uname(&name) == 0 ? name.machine : "";
}

bool is_executable(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

std::string on_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_executable(name) ? name : "";
  const std::string directories = environment("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  for (std::size_t begin = 0; begin < directories.size();) {
    const std::size_t end = std::min(directories.find(':', begin), directories.size());
    if (const std::string candidate = directories.substr(begin, end - begin) + "/" + name;
        end > begin && is_executable(candidate))
      return candidate;
    begin = end + 1;
  }
  return "";
}

/// `command` and more words.
Outcome run(std::vector<std::string> command, std::initializer_list<std::vector<std::string>> more,
            const TemporaryDirectory& directory) {
  for (const auto& words : more) command.insert(command.end(), words.begin(), words.end());
  return run_program(command, directory.file("log"), directory.path());
}

std::string compiler_path() {
  if (const auto chosen = environment("JITGEMM_CXX")) {
    if (const std::string path = on_path(*chosen); !path.empty()) return path;
    throw Error(ErrorCode::no_compiler, "JITGEMM_CXX=" + *chosen + " is not an executable; set it to a C++20 compiler");
  }
  for (const char* name : {"c++", "g++", "clang++"})
    if (const std::string path = on_path(name); !path.empty()) return path;
  if (const auto fallback = environment("JITGEMM_FALLBACK_CXX"))
    if (const std::string path = on_path(*fallback); !path.empty()) return path;
  throw Error(ErrorCode::no_compiler,
              "the emulator needs a C++20 compiler and finds none of c++, g++ and clang++ on PATH; install g++ or "
              "clang++, or name another in JITGEMM_CXX, or for Python `pip install 'jitgemm[emulator]'`");
}

/// The C library's mathematics, as this process has it. zig would take it from a package for developers or make one
/// like it.
std::vector<std::string> math_library() {
  const std::unique_ptr<void, int (*)(void*)> library(dlopen("libm.so.6", RTLD_LAZY), dlclose);
  link_map* loaded = nullptr;
  if (!library || dlinfo(library.get(), RTLD_DI_LINKMAP, &loaded) != 0) return {};
  return {loaded->l_name};
}

/// device.hpp includes it: which DataType is meant by a type of the templates.
std::string tensor_types() {
  std::string text;
  for (const DataTypeInfo& info : data_types()) {
    if (!info.tensor_cores || info.partners.empty()) continue;
    text.append("constexpr TensorType tensor_type(").append(info.device_name).append(") { return TensorType(");
    text.append(std::to_string(int(info.type))).append("); }  // ").append(info.name).append("\n");
  }
  return text;
}

/// Follows a kernel's text: how it is launched with bytes.
std::string launcher_of(const std::string& entry) {
  return "\nextern \"C\" {\n"
         "extern const unsigned jitgemm_emulator_argument_bytes = jitgemm::device::emulator::argument_bytes(&" +
         entry +
         ");\n"
         "void jitgemm_emulator_run(const void* arguments) { jitgemm::device::emulator::run(&" +
         entry + ", arguments); }\n}\n";
}

}  // namespace

std::string HostCompiler::kind() {
  std::string device_text = tensor_types();
  for (const DeviceFile& file : emulator_device_files()) device_text += file.text;
  return "g++ emulator-" + digest_of(device_text).substr(0, 16) + " " + host_architecture() +
         (with_asan ? " asan" : "") + (with_tsan ? " tsan" : "") + (with_ubsan ? " ubsan" : "");
}

const HostCompiler::Found& HostCompiler::find() {
  std::lock_guard lock(mutex_);
  if (!found_.command.empty()) return found_;
  Found found;
  const std::string path = compiler_path();
  found.command = {path};
  found.is_zig = std::filesystem::path(path).filename() == "zig";
  if (found.is_zig) found.command.push_back("c++");
  const TemporaryDirectory directory;
  const Outcome version = run(found.command, {{"--version"}}, directory);
  if (version.status != 0)
    throw Error(ErrorCode::no_compiler, path + " --version fails; set JITGEMM_CXX to a C++20 compiler")
        .with_log(version.output);
  found.version = version.output.substr(0, version.output.find('\n'));

  // -Og: -O1 takes half as long again to compile, which few kernels run long enough to make up.
  found.flags = {"-std=c++20", "-Og", "-fPIC", "-Werror=return-type", "-Wno-psabi", "-ffp-contract=off"};
  // By itself zig compiles for the very CPU that it runs on, and with half of UBSan.
  if (found.is_zig) found.flags.insert(found.flags.end(), {"-mcpu=baseline", "-fno-sanitize=undefined"});
  if (with_asan) found.flags.push_back("-fsanitize=address");
  if (with_tsan) found.flags.push_back("-fsanitize=thread");
  // Signed sums that are too large wrap as on a GPU, where the compiler could take it that there are none, or are
  // UBSan's to find.
  if (with_ubsan)
    found.flags.insert(found.flags.end(), {"-fsanitize=undefined", "-fno-sanitize-recover=undefined"});
  else
    found.flags.push_back("-fwrapv");
  write_file(directory.file("empty.cpp"), "");
  const auto add_if_known = [&](const std::string& flag) {
    if (run(found.command, {{flag, "-c", directory.file("empty.cpp"), "-o", directory.file("empty.o")}}, directory)
            .status == 0)
      found.flags.push_back(flag);
  };
  add_if_known("-ftrivial-auto-var-init=pattern");  // uninitialised accumulators become conspicuous
  // A call for each access that is checked: g++ 12 then takes a third of the time for a kernel, which runs as fast.
  if (with_asan) add_if_known("--param=asan-instrumentation-with-call-threshold=0");
  found_ = std::move(found);
  return found_;
}

std::string HostCompiler::version() { return find().version; }

KernelBinary HostCompiler::compile(const KernelSource& source) {
  const Found& compiler = find();
  const TemporaryDirectory directory;
  for (const DeviceFile& file : emulator_device_files()) write_file(directory.file(std::string(file.name)), file.text);
  write_file(directory.file("tensor_types.hpp"), tensor_types());
  write_file(directory.file("kernel.cpp"), source.text + launcher_of(source.entry));
  const std::vector<std::string> text = {"-DJITGEMM_EMULATOR=\"device.hpp\"", directory.file("kernel.cpp"), "-o"};
  const std::string object = directory.file("kernel.o"), library = directory.file("kernel.so");
  Outcome outcome;
  if (compiler.is_zig) {
    // It links with a C++ library and a run-time library that it compiles itself, which takes long. A kernel needs
    // neither.
    outcome = run(compiler.command, {compiler.flags, {"-c"}, text, {object}}, directory);
    if (outcome.status == 0)
      outcome = run(compiler.command, {{"-shared", "-nostdlib", object}, math_library(), {"-o", library}}, directory);
  } else {
    outcome = run(compiler.command, {compiler.flags, {"-shared"}, text, {library}}, directory);
  }
  if (const std::string its = error_of_epilogue(outcome.output); outcome.status != 0 && !its.empty())
    throw Error(ErrorCode::compile_failed,
                "the epilogue does not compile: " + its + "; correct it, Error::log() has the rest")
        .with_config(source.config)
        .with_call(compiler.command[0])
        .with_log(outcome.output);
  if (outcome.status != 0)
    throw Error(ErrorCode::compile_failed,
                source.entry +
                    " does not compile for the emulator; the compiler's words are the log, and "
                    "another JITGEMM_CXX may accept it")
        .with_config(source.config)
        .with_call(compiler.command[0])
        .with_log(outcome.output);
  std::optional<std::string> code = read_file(library);
  if (!code && is_out_of_descriptors(errno))
    throw Error(ErrorCode::io,
                "cannot read a kernel that was compiled: " + errno_text(errno) + "; " + more_descriptors);
  if (!code)
    throw Error(ErrorCode::io, compiler.command[0] + " left no kernel that can be read (" + errno_text(errno) +
                                   "); set JITGEMM_CXX to a C++20 compiler, or TMPDIR to a directory with space");
  KernelBinary binary;
  binary.code = std::move(*code);
  binary.entry = source.entry;
  binary.architecture = source.architecture;
  binary.compiler = compiler.version;
  return binary;
}

}  // namespace jitgemm::emulator
