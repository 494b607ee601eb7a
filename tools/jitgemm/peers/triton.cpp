#include "peers/triton.hpp"

#include <cuda.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "backend/cuda/driver_api.hpp"

namespace jitgemm::cli {
namespace {

constexpr const char* way_out = "write it again with tools/triton_peer/compile.py";

void check(CUresult result, const char* call) {
  cuda::check(cuda::driver(), result, ErrorCode::launch_failed, call,
              "the Triton kernels do not fit this device or driver: leave --triton-manifest out");
}

/// The arguments that a kernel may take at run time, by their names in the tutorial. Scratch stays null.
enum class Argument { a, b, c, m, n, k, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, scratch };
constexpr std::array argument_names{"a_ptr",     "b_ptr",     "c_ptr",     "M",         "N",         "K",
                                    "stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn"};

constexpr std::size_t most_arguments = argument_names.size() + 2;

bool is_pointer(Argument argument) { return argument <= Argument::c || argument == Argument::scratch; }

Argument argument_named(const std::string& name) {
  if (name == "global_scratch" || name == "profile_scratch") return Argument::scratch;
  const auto found = std::find(argument_names.begin(), argument_names.end(), name);
  if (found == argument_names.end()) {
    throw Error(ErrorCode::io, fmt::format("a Triton kernel has an unknown argument \"{}\": {}", name, way_out));
  }
  return Argument(found - argument_names.begin());
}

std::int64_t value_of(Argument argument, const Problem& p) {
  const bool rows_a = p.a.layout == Layout::row_major, rows_b = p.b.layout == Layout::row_major;
  switch (argument) {
    case Argument::m:
      return p.m;
    case Argument::n:
      return p.n;
    case Argument::k:
      return p.k;
    case Argument::stride_am:
      return rows_a ? p.a.ld : 1;
    case Argument::stride_ak:
      return rows_a ? 1 : p.a.ld;
    case Argument::stride_bk:
      return rows_b ? p.b.ld : 1;
    case Argument::stride_bn:
      return rows_b ? 1 : p.b.ld;
    case Argument::stride_cm:
      return p.d.ld;
    case Argument::stride_cn:
      return 1;
    default:
      return 0;
  }
}

struct Kernel {
  std::filesystem::path file;
  std::string name;
  DataType type = f16;
  Activation activation = Activation::none;
  int block_m = 0, block_n = 0, block_k = 0, group_m = 0, stages = 0, warps = 0, smem_bytes = 0;
  std::vector<Argument> arguments;  ///< in the order of the kernel's parameters
  std::vector<Argument> divisible_by_16, equal_to_1;

  CUmodule module = nullptr;
  CUfunction function = nullptr;

  /// Whether it computes this problem, and was specialised for sizes and strides like these.
  bool serves(const Problem& p) const {
    const bool plain = p.alpha == 1 && p.beta == 0 && p.epilogue.bias == Bias::none && p.batch == 1 &&
                       p.accumulation == Accumulation::fast;
    if (!plain || p.a.type != type || p.b.type != type || p.d.type != f16 || p.epilogue.activation != activation)
      return false;
    if (activation == Activation::leaky_relu && p.epilogue.slope != 0.01) return false;
    if (p.m == 0 || p.n == 0) return false;
    return std::all_of(divisible_by_16.begin(), divisible_by_16.end(),
                       [&](Argument x) { return is_pointer(x) || value_of(x, p) % 16 == 0; }) &&
           std::all_of(equal_to_1.begin(), equal_to_1.end(), [&](Argument x) { return value_of(x, p) == 1; }) &&
           std::all_of(arguments.begin(), arguments.end(), [&](Argument x) { return value_of(x, p) < (1LL << 31); });
  }

  std::string config() const {
    return fmt::format("{}x{}x{} stages={} warps={}", block_m, block_n, block_k, stages, warps);
  }

  void load() {
    if (function) return;
    std::ifstream stream(file, std::ios::binary);
    std::stringstream bytes;
    bytes << stream.rdbuf();
    const std::string cubin = bytes.str();
    if (!cubin.starts_with("\177ELF")) {
      throw Error(ErrorCode::io, fmt::format("{} is no cubin: {}", file.string(), way_out));
    }
    check(cuda::driver().module_load_data(&module, cubin.data()), "cuModuleLoadData");
    check(cuda::driver().module_get_function(&function, module, name.c_str()), "cuModuleGetFunction");
    const auto set = [this](CUfunction_attribute attribute, int value) {
      check(cuda::driver().func_set_attribute(function, attribute, value), "cuFuncSetAttribute");
    };
    if (smem_bytes <= 48 << 10) return;
    set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem_bytes);
    set(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_SHAREDMEM_CARVEOUT_MAX_SHARED);  // as Triton's loader
  }

  void launch(const Problem& p, const Operands& operands, Stream stream) const {
    for (const void* pointer : {operands.a, operands.b, static_cast<const void*>(operands.d)}) {
      if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) {
        throw Error(ErrorCode::invalid_operand, "a Triton kernel was specialised for pointers divisible by 16");
      }
    }
    union Value {
      const void* pointer;
      std::int32_t number;
    };
    std::array<Value, most_arguments> values{};
    std::array<void*, most_arguments> parameters{};
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Argument argument = arguments[i];
      if (argument == Argument::a) values[i].pointer = operands.a;
      if (argument == Argument::b) values[i].pointer = operands.b;
      if (argument == Argument::c) values[i].pointer = operands.d;
      if (!is_pointer(argument)) values[i].number = std::int32_t(value_of(argument, p));
      parameters[i] = &values[i];
    }
    const auto blocks = [](std::int64_t size, int block) { return unsigned((size + block - 1) / block); };
    CUlaunchConfig config{};
    config.gridDimX = blocks(p.m, block_m) * blocks(p.n, block_n);
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = unsigned(32 * warps);
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = unsigned(smem_bytes);
    config.hStream = stream;
    check(cuda::driver().launch_kernel_ex(&config, function, parameters.data(), nullptr), "cuLaunchKernelEx");
  }
};

std::vector<Argument> arguments_named(const nlohmann::json& names) {
  std::vector<Argument> arguments;
  for (const std::string name : names) arguments.push_back(argument_named(name));
  return arguments;
}

/// json::get<int>() alone takes any number, also one that is no int.
int int_of(const nlohmann::json& value) {
  if (!value.is_number_integer() || !std::in_range<int>(value.get<std::int64_t>())) {
    throw Error(ErrorCode::io, fmt::format("{} is not an int: {}", value.dump(), way_out));
  }
  return value.get<int>();
}

Kernel kernel_of(const nlohmann::json& json, const std::filesystem::path& folder) {
  Kernel kernel;
  kernel.file = folder / std::string(json.at("file"));
  kernel.name = json.at("kernel");
  const std::optional<DataType> type = parse_data_type(std::string(json.at("type")));
  const std::optional<Activation> activation = parse_activation(std::string(json.at("activation")));
  if (!type || !activation) {
    throw Error(ErrorCode::io, fmt::format("{} is for type {}, activation {}, which this version does not know: {}",
                                           kernel.file.string(), std::string(json.at("type")),
                                           std::string(json.at("activation")), way_out));
  }
  kernel.type = *type;
  kernel.activation = *activation;
  kernel.block_m = int_of(json.at("block_m"));
  kernel.block_n = int_of(json.at("block_n"));
  kernel.block_k = int_of(json.at("block_k"));
  kernel.group_m = int_of(json.at("group_m"));
  kernel.stages = int_of(json.at("num_stages"));
  kernel.warps = int_of(json.at("num_warps"));
  kernel.smem_bytes = int_of(json.at("shared_bytes"));
  for (const nlohmann::json& argument : json.at("arguments")) {
    kernel.arguments.push_back(argument_named(argument.at("name")));
    const std::string argument_type = argument.at("type");
    if (argument_type.starts_with('*') != is_pointer(kernel.arguments.back()) ||
        (!argument_type.starts_with('*') && argument_type != "i32")) {
      throw Error(ErrorCode::io, fmt::format("{}: argument {} has the type {}: {}", kernel.file.string(),
                                             std::string(argument.at("name")), argument_type, way_out));
    }
  }
  kernel.divisible_by_16 = arguments_named(json.at("divisible_by_16"));
  kernel.equal_to_1 = arguments_named(json.at("equal_to_1"));
  const bool sizes_known = kernel.block_m > 0 && kernel.block_n > 0 && kernel.warps > 0 && kernel.warps <= 32;
  const std::size_t count = kernel.arguments.size();
  if (!sizes_known || kernel.smem_bytes < 0 || count < 3 || count > most_arguments) {
    throw Error(ErrorCode::io, fmt::format("{}: this kernel cannot be launched: {}", kernel.file.string(), way_out));
  }
  if (!std::filesystem::exists(kernel.file)) {
    throw Error(ErrorCode::io, fmt::format("{} is missing: {}", kernel.file.string(), way_out));
  }
  return kernel;
}

}  // namespace

struct TritonPeer::Impl {
  std::string triton;
  std::vector<Kernel> kernels;
};

TritonPeer::TritonPeer(const std::filesystem::path& path) : impl_(std::make_unique<Impl>()) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::io, fmt::format("cannot read {}: {}", path.string(), way_out));
  try {
    const nlohmann::json json = nlohmann::json::parse(file);
    if (json.at("format") != 1) {
      throw Error(ErrorCode::io,
                  fmt::format("{} has another format than this version reads: {}", path.string(), way_out));
    }
    impl_->triton = json.at("triton");
    for (const nlohmann::json& kernel : json.at("kernels")) {
      impl_->kernels.push_back(kernel_of(kernel, path.parent_path()));
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::io,
                fmt::format("{} is no manifest of Triton kernels ({}): {}", path.string(), error.what(), way_out));
  }
  if (impl_->kernels.empty()) throw Error(ErrorCode::io, fmt::format("{} lists no kernel: {}", path.string(), way_out));
}

TritonPeer::~TritonPeer() {
  for (const Kernel& kernel : impl_->kernels) {
    if (kernel.module) cuda::driver().module_unload(kernel.module);
  }
}

std::string TritonPeer::version() const {
  return fmt::format("Triton {}, {} kernels", impl_->triton, impl_->kernels.size());
}

PeerCandidates TritonPeer::candidates(const Problem& normalised, Stream stream) {
  std::vector<Kernel*> chosen;
  for (Kernel& kernel : impl_->kernels) {
    if (!kernel.serves(normalised)) continue;
    kernel.load();
    chosen.push_back(&kernel);
  }
  return {"triton", int(chosen.size()),
          [=](const Operands& operands, int i) { chosen[std::size_t(i)]->launch(normalised, operands, stream); },
          [=](int i) { return chosen[std::size_t(i)]->config(); }};
}

}  // namespace jitgemm::cli
