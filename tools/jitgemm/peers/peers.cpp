#include "peers/peers.hpp"

namespace jitgemm::cli {

#ifdef JITGEMM_HAVE_CUBLASLT
std::unique_ptr<Peers> make_cublas_peers(Stream stream, void* workspace, std::size_t workspace_bytes);
#endif

std::unique_ptr<Peers> make_peers([[maybe_unused]] Stream stream, [[maybe_unused]] void* workspace,
                                  [[maybe_unused]] std::size_t workspace_bytes) {
#ifdef JITGEMM_HAVE_CUBLASLT
  return make_cublas_peers(stream, workspace, workspace_bytes);
#else
  return nullptr;
#endif
}

}  // namespace jitgemm::cli
