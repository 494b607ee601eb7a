#include "tensor_map_cache.hpp"

#include <atomic>
#include <cstring>
#include <thread>

#include "backend/backend.hpp"
#include "catch.hpp"
#include "random.hpp"

using namespace jitgemm;
using jitgemm::test::Random;

TEST_CASE("Threads get the tensor map that they ask for", "[context]") {
  const auto backend = make_emulator_backend({});
  TensorMapCache maps(*backend);
  void* memory = backend->allocate(1 << 20);
  const auto spec = [&](int i) {
    return TensorMapSpec{.address = static_cast<char*>(memory) + 16 * (i % 512),
                         .type = f16,
                         .inner = 64 + i / 512,
                         .outer = 64,
                         .stride = 128,
                         .box_inner = 64,
                         .box_outer = 64};
  };
  std::vector<device::TensorMap> expected;
  for (int i = 0; i < 3000; ++i) expected.push_back(backend->encode_tensor_map(spec(i)));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random{std::uint64_t(t)};
      for (int round = 0; round < 20000; ++round) {
        const int i = random.between(0, 2999);
        const device::TensorMap map = maps.get(spec(i));
        wrong += std::memcmp(&map, &expected[std::size_t(i)], sizeof map) != 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  backend->release(memory);
}
