#include "backend/cuda/nvrtc.hpp"

#include <dlfcn.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <future>
#include <limits>
#include <optional>

#include "backend/cuda/pure_ptx.hpp"
#include "core/epilogue_text.hpp"
#include "jitgemm/error.hpp"
#include "util/directory.hpp"
#include "util/environment.hpp"
#include "util/log.hpp"

namespace jitgemm::cuda {
namespace fs = std::filesystem;
namespace {

constexpr std::array sonames = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"};
// No operator of a text is contracted: each product and each sum is rounded as it is written.
constexpr std::array options = {"-default-device", "--std=c++17", "--fmad=false"};
constexpr const char* way_out =
    "install a CUDA toolkit or `pip install nvidia-cuda-nvrtc` and name the library in JITGEMM_NVRTC";

/// The newest NVRTC under a toolkit's or a wheel's folder.
std::optional<fs::path> library_under(const fs::path& folder) {
  for (const char* soname : sonames) {
    for (const char* sub :
         {"", "lib64", "lib", "cuda_nvrtc/lib", "cu13/lib", "nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}) {
      std::error_code ignored;
      if (const fs::path path = folder / sub / soname; fs::exists(path, ignored)) return path;
    }
  }
  return std::nullopt;
}

/// NVRTC opens libnvrtc-builtins by name; the loader does not know the folder of a wheel unless it is loaded already.
void load_builtins_beside(const void* symbol) {
  Dl_info info;
  if (!dladdr(symbol, &info)) return;
  const fs::path folder = fs::path(info.dli_fname).parent_path();
  for (const std::string& name : names_in(folder)) {
    if (name.starts_with("libnvrtc-builtins.so.")) dlopen((folder / name).c_str(), RTLD_NOW);
  }
}

Error nvrtc_error(const NvrtcApi& api, nvrtcResult result, const char* call) {
  const bool memory = result == NVRTC_ERROR_OUT_OF_MEMORY;
  return Error(memory ? ErrorCode::out_of_memory : ErrorCode::compile_failed,
               std::string(call) + " failed: " + api.get_error_string(result) +
                   (memory ? "; free host memory first" : "; check the installation of " + api.name))
      .with_call(call);
}

/// An NVRTC program and what becomes of it.
class Program {
 public:
  Program(const NvrtcApi& api, const std::string& text, const std::string& name) : api_(api) {
    require(api.create_program(&program_, text.c_str(), name.c_str(), 0, nullptr, nullptr), "nvrtcCreateProgram");
  }
  ~Program() {
    if (api_.destroy_program(&program_) == NVRTC_SUCCESS) return;
    logger().warn("nvrtcDestroyProgram failed; the program's memory stays until the process ends");
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcResult compile(const std::vector<const char*>& arguments) {
    return api_.compile_program(program_, int(arguments.size()), arguments.data());
  }
  std::string log() {
    return text(api_.get_program_log_size, "nvrtcGetProgramLogSize", api_.get_program_log, "nvrtcGetProgramLog");
  }
  std::string cubin() { return bytes(api_.get_cubin_size, "nvrtcGetCUBINSize", api_.get_cubin, "nvrtcGetCUBIN"); }
  std::string ptx() { return text(api_.get_ptx_size, "nvrtcGetPTXSize", api_.get_ptx, "nvrtcGetPTX"); }

 private:
  template <typename Size, typename Get>
  std::string bytes(Size size_of_it, const char* size_call, Get get, const char* call) {
    std::size_t size = 0;
    require(size_of_it(program_, &size), size_call);
    std::string result(size, '\0');
    if (size > 0) require(get(program_, result.data()), call);
    return result;
  }
  template <typename Size, typename Get>
  std::string text(Size size_of_it, const char* size_call, Get get, const char* call) {
    std::string result = bytes(size_of_it, size_call, get, call);
    while (!result.empty() && result.back() == '\0') result.pop_back();
    return result;
  }
  void require(nvrtcResult result, const char* call) {
    if (result != NVRTC_SUCCESS) throw nvrtc_error(api_, result, call);
  }

  const NvrtcApi& api_;
  nvrtcProgram program_ = nullptr;
};

std::string_view line_with(std::string_view log, std::size_t position) {
  const std::size_t begin = log.rfind('\n', position) + 1;  // npos + 1 = 0
  return log.substr(begin, log.find('\n', position) - begin);
}

/// The line of the first error, without what follows it.
std::string first_error(std::string_view log) {
  for (const char* mark : {"): error:", "error:", "error   :", "fatal"}) {
    if (const std::size_t at = log.find(mark); at != std::string_view::npos) return std::string(line_with(log, at));
  }
  return std::string(log.substr(0, log.find('\n')));
}

std::string refusal(const NvrtcApi& api, nvrtcResult result, const std::string& log) {
  return api.name + " refuses the kernel: " + (log.empty() ? api.get_error_string(result) : first_error(log)) +
         "; Error::log() has the rest, Context::source() the text";
}

/// ptxas's advice that it gave up what the sm90 main loop is built on: C7500 to C7599.
std::optional<std::string> serialisation_advice(std::string_view log) {
  const auto digit = [&](std::size_t i) { return i < log.size() && log[i] >= '0' && log[i] <= '9'; };
  for (std::size_t at = log.find("C75"); at != std::string_view::npos; at = log.find("C75", at + 1)) {
    if (digit(at + 3) && digit(at + 4) && !digit(at + 5)) return std::string(line_with(log, at));
  }
  return std::nullopt;
}

/// sm_90a is a real architecture, compute_90a the virtual one whose language PTX is.
std::string virtual_architecture(const KernelSource& source) {
  return "--gpu-architecture=compute" + source.architecture.substr(source.architecture.find('_'));
}

/// Compiled alone, the caller's function has its own errors, and shows in PTX what it does besides computing a value.
void check_custom_epilogue_alone(const NvrtcApi& api, const KernelSource& source) {
  const std::string target = virtual_architecture(source);
  std::vector<const char*> arguments(options.begin(), options.end());
  const char* const no_missing_return = "--diag-error=940";
  arguments.insert(arguments.end(), {target.c_str(), "--relocatable-device-code=true", "-lineinfo", no_missing_return});
  Program program(api, source.custom_epilogue_alone, "epilogue.cu");
  const nvrtcResult result = program.compile(arguments);
  const auto failure = [&](const std::string& what, const std::string& log) {
    return Error(ErrorCode::compile_failed, what)
        .with_config(source.config)
        .with_call("nvrtcCompileProgram")
        .with_log(log);
  };
  if (result == NVRTC_ERROR_COMPILATION) {
    const std::string log = program.log(), its = error_of_epilogue(log);
    throw failure("the epilogue does not compile: " + (its.empty() ? first_error(log) : its) +
                      "; correct it, Error::log() has the rest",
                  log);
  }
  if (result != NVRTC_SUCCESS) return;  // what is wrong with the compiler is said of the kernel
  const std::string ptx = program.ptx();
  if (const std::string why = why_ptx_refused(ptx, "jitgemm_epilogue"); !why.empty())
    throw failure("the epilogue does more than compute a value: " + why, ptx);
}

}  // namespace

std::vector<std::string> nvrtc_libraries() {
  if (const auto named = environment("JITGEMM_NVRTC")) {
    std::error_code ignored;
    if (fs::is_regular_file(*named, ignored)) return {*named};
    if (const auto library = library_under(*named)) return {library->string()};
    throw Error(ErrorCode::invalid_option,
                "JITGEMM_NVRTC=" + *named + " is neither a libnvrtc.so nor a folder that has one; correct or unset it");
  }
  std::vector<fs::path> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const auto home = environment(variable)) folders.emplace_back(*home);
  }
  folders.emplace_back("/usr/local/cuda");
#ifdef JITGEMM_NVRTC_DIR
  folders.emplace_back(JITGEMM_NVRTC_DIR);
#endif
  std::vector<std::string> libraries;
  for (const char* soname : sonames) {
    libraries.emplace_back(soname);
    for (const fs::path& folder : folders) {
      for (const char* sub : {"lib64", "lib", ""}) libraries.push_back(folder / sub / soname);
    }
  }
  return libraries;
}

std::string exact_name(const NvrtcApi& api) {
  int major = 0, minor = 0;
  if (const nvrtcResult result = api.version(&major, &minor); result != NVRTC_SUCCESS) {
    throw Error(ErrorCode::no_compiler,
                std::string("nvrtcVersion failed: ") + api.get_error_string(result) + "; " + way_out)
        .with_call("nvrtcVersion");
  }
  const std::string version = std::to_string(major) + "." + std::to_string(minor), name = "nvrtc " + version;
  // nvrtcVersion() has no build number, but the first lines of any PTX do: "..., release 13.0, V13.0.88".
  NvrtcApi named = api;
  named.name = name;
  try {
    Program program(named, "", "version.cu");
    const nvrtcResult compiled = program.compile({"--gpu-architecture=compute_80"});
    if (compiled == NVRTC_ERROR_INVALID_OPTION) return name;
    if (compiled != NVRTC_SUCCESS) throw nvrtc_error(named, compiled, "nvrtcCompileProgram");
    const std::string ptx = program.ptx();
    const std::size_t begin = ptx.find(", V" + version + ".");
    if (begin == std::string::npos) return name;
    return "nvrtc " + ptx.substr(begin + 3, ptx.find_first_not_of("0123456789.", begin + 3) - begin - 3);
  } catch (const Error& error) {
    logger().warn("{}; its build number stays unknown", error.what());
    return name;
  }
}

std::atomic<const NvrtcApi*> nvrtc_for_tests = nullptr;

NvrtcApi bind_nvrtc(const std::function<void*(const char*)>& symbol, const std::string& library) {
  const auto bind = [&]<typename Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(symbol(name));
    if (!function) {
      throw Error(ErrorCode::no_compiler,
                  library + " is no NVRTC, or older than 11.1: it has no " + name + "; " + way_out);
    }
  };
  NvrtcApi api;
  bind(api.version, "nvrtcVersion");
  bind(api.get_error_string, "nvrtcGetErrorString");
  bind(api.create_program, "nvrtcCreateProgram");
  bind(api.destroy_program, "nvrtcDestroyProgram");
  bind(api.compile_program, "nvrtcCompileProgram");
  bind(api.get_program_log_size, "nvrtcGetProgramLogSize");
  bind(api.get_program_log, "nvrtcGetProgramLog");
  bind(api.get_cubin_size, "nvrtcGetCUBINSize");
  bind(api.get_cubin, "nvrtcGetCUBIN");
  bind(api.get_ptx_size, "nvrtcGetPTXSize");
  bind(api.get_ptx, "nvrtcGetPTX");
  return api;
}

NvrtcApi load_nvrtc(const std::vector<std::string>& libraries) {
  std::optional<Error> unusable;
  for (const std::string& name : libraries) {
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) continue;
    try {
      NvrtcApi api = bind_nvrtc([library](const char* symbol) { return dlsym(library, symbol); }, name);
      load_builtins_beside(reinterpret_cast<void*>(api.version));
      api.name = exact_name(api);
      logger().debug("{} from {}", api.name, name);
      return api;
    } catch (const Error& error) {
      unusable = error;
    }
  }
  if (unusable) throw *unusable;
  const std::string tried = libraries.size() == 1 ? " (" + libraries[0] + " cannot be loaded)" : "";
  throw Error(ErrorCode::no_compiler, "no NVRTC to compile kernels with" + tried + "; " + way_out);
}

const NvrtcApi& nvrtc() {
  if (const NvrtcApi* const given = nvrtc_for_tests.load(std::memory_order_acquire)) return *given;
  static const NvrtcApi& api = *new NvrtcApi(load_nvrtc(nvrtc_libraries()));  // never unloaded
  return api;
}

std::string nvrtc_kind() {
  std::string kind = "nvrtc";
  for (const char* option : options) kind += std::string(" ") + option;
  return kind;
}

PtxasInfo parse_ptxas_info(std::string_view log) {
  constexpr int most = std::numeric_limits<int>::max();
  const auto add = [](int x, int y) { return x > most - y ? most : x + y; };
  // The sum over all lines of the number in front of `unit`.
  const auto sum = [&](std::string_view unit) {
    int total = 0;
    for (std::size_t at = log.find(unit); at != std::string_view::npos; at = log.find(unit, at + 1)) {
      std::size_t begin = at;
      while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
      int value = 0;
      std::from_chars(log.data() + begin, log.data() + at, value);
      total = add(total, value);
    }
    return total;
  };
  return {sum(" registers"), add(sum(" bytes spill stores"), sum(" bytes spill loads")), sum(" bytes smem")};
}

KernelBinary compile(const NvrtcApi& api, const KernelSource& source) {
  // Beside the kernel, which takes longer. What is wrong with the function is said in its own words, so it comes first.
  std::future<void> alone;
  if (!source.custom_epilogue_alone.empty()) alone = std::async([&] { check_custom_epilogue_alone(api, source); });
  const std::string architecture = "--gpu-architecture=" + source.architecture;
  std::vector<const char*> arguments(options.begin(), options.end());
  arguments.push_back(architecture.c_str());
  arguments.push_back("--ptxas-options=-v");  // registers and spills, in the log

  Program program(api, source.text, source.entry + ".cu");
  nvrtcResult result = program.compile(arguments);
  std::string log;
  try {
    log = program.log();
  } catch (const Error&) {
    if (result == NVRTC_SUCCESS) throw;  // else the compiler's own answer matters more
  }
  if (result == NVRTC_SUCCESS && parse_ptxas_info(log).registers == 0) {
    // NVRTC has answered from a cache of its own, without what ptxas had to say.
    arguments.push_back("--no-cache");
    result = program.compile(arguments);
    log = program.log();
  }
  if (alone.valid()) alone.get();
  const auto failure = [&](ErrorCode code, const std::string& what) {
    return Error(code, what).with_config(source.config).with_call("nvrtcCompileProgram").with_log(log);
  };
  if (result == NVRTC_ERROR_OUT_OF_MEMORY) throw nvrtc_error(api, result, "nvrtcCompileProgram").with_log(log);
  if (result == NVRTC_ERROR_BUILTIN_OPERATION_FAILURE) {
    throw failure(ErrorCode::no_compiler, api.name + " finds no libnvrtc-builtins of its version; " + way_out);
  }
  if (result == NVRTC_ERROR_INVALID_OPTION) {
    throw failure(ErrorCode::no_compiler, api.name + " cannot compile for " + source.architecture + " (" +
                                              first_error(log) +
                                              "); install a newer NVRTC and name it in JITGEMM_NVRTC");
  }
  if (result != NVRTC_SUCCESS) throw failure(ErrorCode::compile_failed, refusal(api, result, log));
  if (const auto advice = serialisation_advice(log)) {
    throw failure(ErrorCode::compile_failed, "ptxas gave up asynchrony that the kernel is built on: " + *advice +
                                                 "; use another configuration or NVRTC");
  }

  const PtxasInfo info = parse_ptxas_info(log);
  KernelBinary binary;
  binary.code = program.cubin();
  binary.entry = source.entry;
  binary.architecture = source.architecture;
  binary.compiler = api.name;
  binary.registers = info.registers;
  binary.spill_bytes = info.spill_bytes;
  binary.static_smem_bytes = info.static_smem_bytes;
  return binary;
}

std::string ptx_of(const NvrtcApi& api, const KernelSource& source) {
  const std::string target = virtual_architecture(source);
  std::vector<const char*> arguments(options.begin(), options.end());
  arguments.push_back(target.c_str());
  Program program(api, source.text, source.entry + ".cu");
  const nvrtcResult result = program.compile(arguments);
  if (result == NVRTC_SUCCESS) return program.ptx();
  const std::string log = program.log();
  throw Error(ErrorCode::compile_failed, refusal(api, result, log))
      .with_config(source.config)
      .with_call("nvrtcCompileProgram")
      .with_log(log);
}

}  // namespace jitgemm::cuda
