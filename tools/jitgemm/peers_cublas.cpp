#include <cublasLt.h>
#include <cublas_v2.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <utility>
#include <vector>

#include "peers.hpp"

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
  // Its C++ header overloads this one.
  cublasStatus_t (*gemm_ex)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType, int lda, const void* b, cudaDataType,
                            int ldb, const void* beta, void* c, cudaDataType, int ldc, cublasComputeType_t,
                            cublasGemmAlgo_t) = nullptr;

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

cudaDataType cuda_type(DataType type) { return type == f16 ? CUDA_R_16F : type == bf16 ? CUDA_R_16BF : CUDA_R_32F; }

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

  int prepare(const Problem& p, int most) override {
    problem_ = p;
    candidates_.clear();
    const cublasOperation_t op_b = operation(p.layout_b), op_a = operation(p.layout_a);
    check(cublas().lt_operation_create(operation_.put(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, op_b);
    set(CUBLASLT_MATMUL_DESC_TRANSB, op_a);
    make_layout(layout_b_.put(), p.b, p.n, p.k, p.ldb, op_b);
    make_layout(layout_a_.put(), p.a, p.k, p.m, p.lda, op_a);
    make_layout(layout_d_.put(), p.d, p.n, p.m, p.ldd, CUBLAS_OP_N);

    Owned<cublasLtMatmulPreference_t> preference(cublas().lt_preference_destroy);
    check(cublas().lt_preference_create(preference.put()), "cublasLtMatmulPreferenceCreate");
    check(cublas().lt_preference_set(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes_,
                                     sizeof workspace_bytes_),
          "cublasLtMatmulPreferenceSetAttribute");
    candidates_.resize(std::size_t(most));
    int found = 0;
    const cublasStatus_t status =
        cublas().lt_get_heuristic(lt_.get(), operation_.get(), layout_b_.get(), layout_a_.get(), layout_d_.get(),
                                  layout_d_.get(), preference.get(), most, candidates_.data(), &found);
    candidates_.resize(status == CUBLAS_STATUS_SUCCESS ? std::size_t(found) : 0);
    return int(candidates_.size());
  }

  void gemm(const Operands& operands) override {
    const Problem& p = problem_;
    check(cublas().gemm_ex(blas_.get(), operation(p.layout_b), operation(p.layout_a), int(p.n), int(p.m), int(p.k),
                           &one_, operands.b, cuda_type(p.b), int(p.ldb), operands.a, cuda_type(p.a), int(p.lda),
                           &zero_, operands.d, cuda_type(p.d), int(p.ldd), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }

  void gemm(const Operands& operands, int candidate) override {
    check(cublas().lt_matmul(lt_.get(), operation_.get(), &one_, operands.b, layout_b_.get(), operands.a,
                             layout_a_.get(), &zero_, operands.d, layout_d_.get(), operands.d, layout_d_.get(),
                             &candidates_[std::size_t(candidate)].algo, workspace_, workspace_bytes_, stream_),
          "cublasLtMatmul");
  }

 private:
  static cublasOperation_t operation(Layout layout) { return layout == Layout::row_major ? CUBLAS_OP_N : CUBLAS_OP_T; }

  void set(cublasLtMatmulDescAttributes_t attribute, cublasOperation_t value) {
    check(cublas().lt_operation_set(operation_.get(), attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }

  /// Of a matrix that `operation` makes rows x columns.
  static void make_layout(cublasLtMatrixLayout_t* layout, DataType type, std::int64_t rows, std::int64_t columns,
                          std::int64_t ld, cublasOperation_t operation) {
    if (operation == CUBLAS_OP_T) std::swap(rows, columns);
    check(cublas().lt_layout_create(layout, cuda_type(type), std::uint64_t(rows), std::uint64_t(columns), ld),
          "cublasLtMatrixLayoutCreate");
  }

  const float one_ = 1, zero_ = 0;
  Stream stream_;
  void* workspace_;
  std::size_t workspace_bytes_;
  Problem problem_;
  Owned<cublasHandle_t> blas_{cublas().destroy};
  Owned<cublasLtHandle_t> lt_{cublas().lt_destroy};
  Owned<cublasLtMatmulDesc_t> operation_{cublas().lt_operation_destroy};
  Owned<cublasLtMatrixLayout_t> layout_a_{cublas().lt_layout_destroy}, layout_b_{cublas().lt_layout_destroy},
      layout_d_{cublas().lt_layout_destroy};
  std::vector<cublasLtMatmulHeuristicResult_t> candidates_;
};

}  // namespace

std::unique_ptr<Peers> make_cublas_peers(Stream stream, void* workspace, std::size_t workspace_bytes) {
  return std::make_unique<CublasPeers>(stream, workspace, workspace_bytes);
}

}  // namespace jitgemm::cli
