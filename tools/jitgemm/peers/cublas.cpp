#include <cublasLt.h>
#include <cublas_v2.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/problem.hpp"
#include "core/type_rules.hpp"
#include "peers/peers.hpp"

namespace jitgemm::cli {

std::unique_ptr<Peers> make_cublas_peers(Stream stream, void* workspace, std::size_t workspace_bytes);

namespace {

/// Opened when a benchmark asks for it: no other command should need or wait for libraries of this size.
struct CublasApi {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasGetVersion_v2) get_version = nullptr;
  decltype(&cublasGetStatusString) get_status_string = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  // Its C++ header overloads these two.
  cublasStatus_t (*gemm_ex)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType, int lda, const void* b, cudaDataType,
                            int ldb, const void* beta, void* c, cudaDataType, int ldc, cublasComputeType_t,
                            cublasGemmAlgo_t) = nullptr;
  cublasStatus_t (*gemm_strided_batched_ex)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                                            const void* alpha, const void* a, cudaDataType, int lda, long long stride_a,
                                            const void* b, cudaDataType, int ldb, long long stride_b, const void* beta,
                                            void* c, cudaDataType, int ldc, long long stride_c, int batch,
                                            cublasComputeType_t, cublasGemmAlgo_t) = nullptr;

  decltype(&cublasLtCreate) lt_create = nullptr;
  decltype(&cublasLtDestroy) lt_destroy = nullptr;
  decltype(&cublasLtGetVersion) lt_get_version = nullptr;
  decltype(&cublasLtMatmul) lt_matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) lt_get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) lt_operation_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) lt_operation_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) lt_operation_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) lt_layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) lt_layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) lt_layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) lt_preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) lt_preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) lt_preference_set = nullptr;
};

/// Where the loader looks, else where it was when this was built.
void* open_library(const std::string& name) {
  for (const std::string& path : {name, JITGEMM_CUBLAS_DIR "/" + name}) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw Error(ErrorCode::no_device,
              fmt::format("cannot open {}: add its folder to LD_LIBRARY_PATH, or use --no-peers", name));
}

CublasApi load_cublas() {
  const std::string version = "so." + std::to_string(CUBLAS_VER_MAJOR);
  void* lt = open_library("libcublasLt." + version);  // first: cuBLAS asks for it by name
  void* blas = open_library("libcublas." + version);
  const auto bind = [](void* library, auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function) throw Error(ErrorCode::no_device, fmt::format("this cuBLAS has no {}: use --no-peers", name));
  };
  CublasApi api;
  bind(blas, api.create, "cublasCreate_v2");
  bind(blas, api.destroy, "cublasDestroy_v2");
  bind(blas, api.get_version, "cublasGetVersion_v2");
  bind(blas, api.get_status_string, "cublasGetStatusString");
  bind(blas, api.set_stream, "cublasSetStream_v2");
  bind(blas, api.set_workspace, "cublasSetWorkspace_v2");
  bind(blas, api.gemm_ex, "cublasGemmEx");
  bind(blas, api.gemm_strided_batched_ex, "cublasGemmStridedBatchedEx");
  bind(lt, api.lt_create, "cublasLtCreate");
  bind(lt, api.lt_destroy, "cublasLtDestroy");
  bind(lt, api.lt_get_version, "cublasLtGetVersion");
  bind(lt, api.lt_matmul, "cublasLtMatmul");
  bind(lt, api.lt_get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  bind(lt, api.lt_operation_create, "cublasLtMatmulDescCreate");
  bind(lt, api.lt_operation_destroy, "cublasLtMatmulDescDestroy");
  bind(lt, api.lt_operation_set, "cublasLtMatmulDescSetAttribute");
  bind(lt, api.lt_layout_create, "cublasLtMatrixLayoutCreate");
  bind(lt, api.lt_layout_destroy, "cublasLtMatrixLayoutDestroy");
  bind(lt, api.lt_layout_set, "cublasLtMatrixLayoutSetAttribute");
  bind(lt, api.lt_preference_create, "cublasLtMatmulPreferenceCreate");
  bind(lt, api.lt_preference_destroy, "cublasLtMatmulPreferenceDestroy");
  bind(lt, api.lt_preference_set, "cublasLtMatmulPreferenceSetAttribute");
  return api;
}

const CublasApi& cublas() {
  static const CublasApi api = load_cublas();
  return api;
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::launch_failed, fmt::format("{} failed: {}; leave the peers out with --no-peers", call,
                                                    cublas().get_status_string(status)));
}

cudaDataType cuda_type(DataType type) {
  switch (type) {
    case f16:
      return CUDA_R_16F;
    case bf16:
      return CUDA_R_16BF;
    case f32:
    case tf32:
      return CUDA_R_32F;
    case f64:
      return CUDA_R_64F;
    case e4m3:
      return CUDA_R_8F_E4M3;
    case e5m2:
      return CUDA_R_8F_E5M2;
    case s8:
      return CUDA_R_8I;
    case s32:
      return CUDA_R_32I;
    case DataType::automatic:
      break;
  }
  return CUDA_R_32F;
}

cublasComputeType_t compute_type(const Problem& p) {
  switch (accumulator_of(p)) {
    case f64:
      return CUBLAS_COMPUTE_64F;
    case s32:
      return CUBLAS_COMPUTE_32I;
    default:
      return p.a.type == tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  }
}

/// Alpha or beta.
class Scalar {
 public:
  Scalar(double value, DataType type) : type_(type), f64_(value), f32_(float(value)) {
    if (type == s32) s32_ = std::int32_t(value);
  }
  const void* get() const {
    if (type_ == s32) return &s32_;
    return type_ == f64 ? static_cast<const void*>(&f64_) : &f32_;
  }

 private:
  DataType type_;
  double f64_;
  float f32_;
  std::int32_t s32_ = 0;
};

/// nullopt for what it has no epilogue for. Its bias lies along the rows of its D, which are our columns; its gelu is
/// the one with tanh.
std::optional<cublasLtEpilogue_t> epilogue_of(const Problem& p) {
  if (p.epilogue.bias == Bias::along_m) return std::nullopt;
  const bool bias = p.epilogue.bias == Bias::along_n;
  switch (p.epilogue.activation) {
    case Activation::none:
      return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Activation::relu:
      return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Activation::gelu_tanh:
      return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default:
      return std::nullopt;
  }
}

/// A handle, destroyed with it.
template <typename Handle>
class Owned {
 public:
  using Destroy = cublasStatus_t (*)(Handle);

  explicit Owned(Destroy destroy) : destroy_(destroy) {}
  ~Owned() { put(); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  Handle get() const { return handle_; }
  /// Where to put a new one.
  Handle* put() {
    if (Handle old = std::exchange(handle_, nullptr)) destroy_(old);
    return &handle_;
  }

 private:
  Destroy destroy_;
  Handle handle_ = nullptr;
};

/// cuBLAS is column-major: it sees D as its transpose, N x M, and so computes transposed B times transposed A.
class CublasPeers : public Peers {
 public:
  CublasPeers(Stream stream, void* workspace, std::size_t workspace_bytes)
      : stream_(stream), workspace_(workspace), workspace_bytes_(workspace_bytes) {
    check(cublas().create(blas_.put()), "cublasCreate");
    check(cublas().set_stream(blas_.get(), stream), "cublasSetStream");
    check(cublas().set_workspace(blas_.get(), workspace, workspace_bytes), "cublasSetWorkspace");
    check(cublas().lt_create(lt_.put()), "cublasLtCreate");
  }

  std::string version() const override {
    int version = 0;
    check(cublas().get_version(blas_.get(), &version), "cublasGetVersion");
    return fmt::format("cuBLAS {}, cuBLASLt {}", version, cublas().lt_get_version());
  }

  int prepare(const Problem& p, int most, bool scales) override {
    problem_ = p;
    scales_ = scales || has_vector_scales(p);
    alpha_ = Scalar(p.alpha, compute_type_of(p));
    beta_ = Scalar(p.beta, compute_type_of(p));
    candidates_.clear();
    if (has_vector_scales(p) && !(has_outer_vectors && p.a.scaling == p.b.scaling && is_fp8(p.a.type))) {
      why_none_ = "cuBLASLt scales by vectors e4m3 and e5m2 alone, both sides, from 12.9 on";
      return 0;
    }
    if (has_block_scales(p)) {
      why_none_ = "its scales of blocks are not asked for here";
      return 0;
    }
    if (!reads_ab(p)) {
      why_none_ = "there is nothing to multiply";
      return 0;
    }
    const auto epilogue = epilogue_of(p);
    if (!epilogue) {
      why_none_ = p.epilogue.bias == Bias::along_m
                      ? "cuBLASLt adds no bias along M"
                      : fmt::format("cuBLASLt applies no {}", to_string(p.epilogue.activation));
      return 0;
    }
    describe(*epilogue);
    look_up(most);
    return int(candidates_.size());
  }

  std::string why_none() const override { return why_none_; }

  std::string default_name() const override {
    if (is_for_cublas()) return "default";
    if (candidates_.empty()) return "";
    if (!is_fp8(problem_.a.type)) return "first candidate";
    return fmt::format("first candidate, {} accumulation", to_string(problem_.accumulation));
  }

  void gemm(const Operands& operands) override {
    const Problem& p = problem_;
    if (!is_for_cublas()) return gemm(operands, 0);
    if (p.batch == 1) {
      check(cublas().gemm_ex(blas_.get(), operation(p.b.layout), operation(p.a.layout), int(p.n), int(p.m), int(p.k),
                             alpha_.get(), operands.b, cuda_type(p.b.type), int(p.b.ld), operands.a,
                             cuda_type(p.a.type), int(p.a.ld), beta_.get(), operands.d, cuda_type(p.d.type),
                             int(p.d.ld), compute_type(p), CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
    } else {
      check(cublas().gemm_strided_batched_ex(blas_.get(), operation(p.b.layout), operation(p.a.layout), int(p.n),
                                             int(p.m), int(p.k), alpha_.get(), operands.b, cuda_type(p.b.type),
                                             int(p.b.ld), p.b.stride, operands.a, cuda_type(p.a.type), int(p.a.ld),
                                             p.a.stride, beta_.get(), operands.d, cuda_type(p.d.type), int(p.d.ld),
                                             p.d.stride, int(p.batch), compute_type(p), CUBLAS_GEMM_DEFAULT),
            "cublasGemmStridedBatchedEx");
    }
  }

  void gemm(const Operands& operands, int candidate) override {
    const void* c = reads_c(problem_) ? operands.c : operands.d;
    if (problem_.epilogue.bias != Bias::none) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    if (scales_) set_scales(operands.scale_a, operands.scale_b);
    check(cublas().lt_matmul(lt_.get(), operation_.get(), alpha_.get(), operands.b, layout_b_.get(), operands.a,
                             layout_a_.get(), beta_.get(), c, layout_c_.get(), operands.d, layout_d_.get(),
                             &candidates_[std::size_t(candidate)].algo, workspace_, workspace_bytes_, stream_),
          "cublasLtMatmul");
  }

 private:
  static cublasOperation_t operation(Layout layout) { return layout == Layout::row_major ? CUBLAS_OP_N : CUBLAS_OP_T; }

  /// Whether cublasGemmEx knows the types and the epilogue. Its C is its D.
  bool is_for_cublas() const {
    const Problem& p = problem_;
    return !is_fp8(p.a.type) && compute_type_of(p) == accumulator_of(p) && !reads_c(p) &&
           p.epilogue.bias == Bias::none && p.epilogue.activation == Activation::none;
  }

  void describe(cublasLtEpilogue_t epilogue) {
    const Problem& p = problem_;
    const cublasOperation_t op_b = operation(p.b.layout), op_a = operation(p.a.layout);
    check(cublas().lt_operation_create(operation_.put(), compute_type(p), cuda_type(compute_type_of(p))),
          "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, op_b);
    set(CUBLASLT_MATMUL_DESC_TRANSB, op_a);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (p.epilogue.bias != Bias::none) {
      const void* aligned_as_the_bias = workspace_;
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned_as_the_bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(type_of_c(p)));
    }
    if (is_fp8(p.a.type)) set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t(p.accumulation == Accumulation::fast));
    if (scales_) {
      const auto* aligned_as_scales = static_cast<const float*>(workspace_);
      set_scales(aligned_as_scales, aligned_as_scales);
      if (has_vector_scales(p)) set_outer_vectors();
    }
    make_layout(layout_b_.put(), p.b.type, p.n, p.k, p.b.ld, p.b.stride, op_b);
    make_layout(layout_a_.put(), p.a.type, p.k, p.m, p.a.ld, p.a.stride, op_a);
    make_layout(layout_d_.put(), p.d.type, p.n, p.m, p.d.ld, p.d.stride, CUBLAS_OP_N);
    make_layout(layout_c_.put(), type_of_c(p), p.n, p.m, reads_c(p) ? p.c.ld : p.d.ld,
                reads_c(p) ? p.c.stride : p.d.stride, CUBLAS_OP_N);
  }

  void look_up(int most) {
    Owned<cublasLtMatmulPreference_t> preference(cublas().lt_preference_destroy);
    check(cublas().lt_preference_create(preference.put()), "cublasLtMatmulPreferenceCreate");
    check(cublas().lt_preference_set(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes_,
                                     sizeof workspace_bytes_),
          "cublasLtMatmulPreferenceSetAttribute");
    candidates_.resize(std::size_t(most));
    int found = 0;
    const cublasStatus_t status =
        cublas().lt_get_heuristic(lt_.get(), operation_.get(), layout_b_.get(), layout_a_.get(), layout_c_.get(),
                                  layout_d_.get(), preference.get(), most, candidates_.data(), &found);
    candidates_.resize(status == CUBLAS_STATUS_SUCCESS ? std::size_t(found) : 0);
    std::erase_if(candidates_, [](const auto& candidate) { return candidate.state != CUBLAS_STATUS_SUCCESS; });
    const std::string why =
        status == CUBLAS_STATUS_SUCCESS ? "" : std::string(": ") + cublas().get_status_string(status);
    why_none_ = candidates_.empty() ? "cuBLASLt has no candidate" + why : "";
  }

  /// Its first operand is our B.
  void set_scales(const float* of_a, const float* of_b) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of_b);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of_a);
  }

#if CUBLAS_VERSION >= 120900
  static constexpr bool has_outer_vectors = true;
  void set_outer_vectors() {
    constexpr std::int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
  }
#else
  static constexpr bool has_outer_vectors = false;
  void set_outer_vectors() {}
#endif

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublas().lt_operation_set(operation_.get(), attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }

  /// Of matrices that `operation` makes rows x columns.
  void make_layout(cublasLtMatrixLayout_t* layout, DataType type, std::int64_t rows, std::int64_t columns,
                   std::int64_t ld, std::int64_t stride, cublasOperation_t operation) const {
    if (operation == CUBLAS_OP_T) std::swap(rows, columns);
    check(cublas().lt_layout_create(layout, cuda_type(type), std::uint64_t(rows), std::uint64_t(columns), ld),
          "cublasLtMatrixLayoutCreate");
    const std::int32_t batch = std::int32_t(problem_.batch);
    check(cublas().lt_layout_set(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
          "cublasLtMatrixLayoutSetAttribute");
    check(cublas().lt_layout_set(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
          "cublasLtMatrixLayoutSetAttribute");
  }

  Stream stream_;
  void* workspace_;
  std::size_t workspace_bytes_;
  Problem problem_;
  bool scales_ = false;
  Scalar alpha_{1, f32}, beta_{0, f32};
  std::string why_none_;
  Owned<cublasHandle_t> blas_{cublas().destroy};
  Owned<cublasLtHandle_t> lt_{cublas().lt_destroy};
  Owned<cublasLtMatmulDesc_t> operation_{cublas().lt_operation_destroy};
  Owned<cublasLtMatrixLayout_t> layout_a_{cublas().lt_layout_destroy}, layout_b_{cublas().lt_layout_destroy},
      layout_c_{cublas().lt_layout_destroy}, layout_d_{cublas().lt_layout_destroy};
  std::vector<cublasLtMatmulHeuristicResult_t> candidates_;
};

}  // namespace

std::unique_ptr<Peers> make_cublas_peers(Stream stream, void* workspace, std::size_t workspace_bytes) {
  return std::make_unique<CublasPeers>(stream, workspace, workspace_bytes);
}

}  // namespace jitgemm::cli
