// On a GPU: memory of cudaMalloc, a stream of one's own, and a graph that replays what was called on it.
#include <cuda_runtime_api.h>
#include <jitgemm/jitgemm.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

int main() {
  if (jitgemm::cuda_devices().empty()) return std::puts("SKIPPED: there is no CUDA device here"), 0;
  const int n = 512, bytes = n * n * sizeof(float);
  const jitgemm::Problem problem{
      .m = n, .n = n, .k = n, .a = {jitgemm::tf32}, .b = {jitgemm::tf32}, .d = {jitgemm::f32}};

  void *a, *b, *d;
  cudaStream_t stream;
  std::vector<float> host(n * n, 1);
  for (void** matrix : {&a, &b, &d}) cudaMalloc(matrix, bytes);
  for (void* matrix : {a, b}) cudaMemcpy(matrix, host.data(), bytes, cudaMemcpyHostToDevice);
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);

  jitgemm::Context context;                                 // this thread's CUDA device
  context.gemm(problem, {.a = a, .b = b, .d = d}, stream);  // measured and compiled on first use; then asynchronous

  cudaGraph_t graph;
  cudaGraphExec_t replay;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  cudaMemsetAsync(d, 0, bytes, stream);
  context.gemm(problem, {.a = a, .b = b, .d = d}, stream);  // launches nothing: the graph has it, with these pointers
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&replay, graph, 0);
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(replay, stream);  // on one stream, as replays must not overlap

  cudaMemcpyAsync(host.data(), d, bytes, cudaMemcpyDeviceToHost, stream);
  const cudaError_t status = cudaStreamSynchronize(stream);
  const bool right = status == cudaSuccess && std::count(host.begin(), host.end(), float(n)) == n * n;
  std::printf("%s; D is %s\n", cudaGetErrorString(status), right ? "right" : "wrong");
  return right ? 0 : 1;  // a program that goes on: graphs, then the Context, then the memory
}
