// Clusters of the emulator: that synchronised kernels run in them, and that what others leave out or do wrong is found.
#include <set>

#include "catch.hpp"
#include "emulator_cluster_kernels.hpp"
#include "errors.hpp"

using namespace jitgemm;
using namespace jitgemm::test;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("The emulator runs synchronised kernels in clusters of every size under every adversary", "[emulator]") {
  ClusterFixture f;
  for (const int cluster : {1, 2, 4, 8})
    for (const EmulatorOptions& options : adversaries(cluster < 4 ? 30 : 6)) {
      INFO("cluster " << cluster << ", seed " << options.seed << ", asynchrony " << int(options.asynchrony));
      REQUIRE(f.run(ring, 0, cluster, options) == "");
      f.check_ring(cluster);
      REQUIRE(f.run(exchange, 0, cluster, options) == "");
      for (int block = 0; block < f.clusters * cluster; ++block)
        for (int t = 0; t < 64; ++t) {
          const int from = block / cluster * cluster + (block + cluster - 1) % cluster;
          REQUIRE(f.d[block * 64 + t] == std::uint32_t(3 * (100 * from + (t + 1) % 64) + 3));
        }
      REQUIRE(f.run(told, 0, cluster, options) == "");
      for (int block = 0; block < f.clusters * cluster; ++block)
        for (int t = 0; t < 64; ++t) {
          std::uint32_t sum = 0;
          for (int i = 0; i < 5; ++i) sum = 3 * sum + std::uint32_t(10 * i + block % cluster);
          REQUIRE(f.d[block * 64 + t] == sum);
        }
      REQUIRE(f.run(partials, 0, cluster, options) == "");
      const int grid = f.clusters * cluster;
      REQUIRE(f.d[63] == std::uint32_t(grid * (grid + 1) / 2));
      REQUIRE(f.counter == 0);
      if (cluster == 1) continue;
      REQUIRE(f.run(signal, 0, cluster, options) == "");
      for (int block = 0; block < grid; block += cluster)
        for (int t = 0; t < 64; ++t) REQUIRE(f.d[block * 64 + t] == std::uint32_t(t ^ 1));
      REQUIRE(f.run(staged, 0, cluster, options, 1) == "");
      for (int t = 0; t < 64; ++t) REQUIRE(f.d[std::size_t(t / 8 * 32 + (t % 8 ^ t / 8) * 4)] == std::uint32_t(t));
      REQUIRE(f.run(misuse, 14, cluster, options) == "");  // who has ended does not hold the barrier up
    }
}

TEST_CASE("The emulator finds what a multicast ring leaves out under every adversary", "[emulator]") {
  ClusterFixture f;
  for (const int cluster : {2, 4})
    for (const EmulatorOptions& options : adversaries(4)) {
      INFO("cluster " << cluster << ", seed " << options.seed << ", asynchrony " << int(options.asynchrony));
      CHECK_THAT(f.run(ring, first_sync, cluster, options), ContainsSubstring("tma_load_multicast_3d: there is no") ||
                                                                ContainsSubstring("TMA load on mbarrier") ||
                                                                ContainsSubstring("mbarrier_arrive_cluster"));
      CHECK_THAT(f.run(ring, init_fence, cluster, options), ContainsSubstring("without a fence_mbarrier_init") ||
                                                                ContainsSubstring("it has not synchronised with"));
      CHECK_THAT(
          f.run(ring, empty_wait, cluster, options),
          ContainsSubstring("race: tma_load_multicast_3d") || ContainsSubstring("all 1 threads have arrived in phase"));
      CHECK_THAT(f.run(ring, peers_release, cluster, options),
                 ContainsSubstring("race: tma_load_multicast_3d") && ContainsSubstring(" of block "));
      CHECK_THAT(f.run(ring, early_release, cluster, options), ContainsSubstring("race: "));
      CHECK_THAT(f.run(ring, full_wait, cluster, options), ContainsSubstring("race: "));
      CHECK_THAT(f.run(ring, last_wait, cluster, options),
                 ContainsSubstring("which has ended") ||
                     ContainsSubstring("the block ends, not synchronised with what thread"));
    }
}

TEST_CASE("The emulator finds missing waits around stores to other blocks under every adversary", "[emulator]") {
  ClusterFixture f;
  for (const int cluster : {2, 4})
    for (const EmulatorOptions& options : adversaries(4)) {
      INFO("cluster " << cluster << ", seed " << options.seed << ", asynchrony " << int(options.asynchrony));
      CHECK_THAT(f.run(exchange, 1, cluster, options), ContainsSubstring("which may not have started") ||
                                                           ContainsSubstring("there is no initialised mbarrier"));
      for (const int omit : {2, 4, 8, 16})
        CHECK_THAT(f.run(exchange, omit, cluster, options),
                   ContainsSubstring("race: ") && ContainsSubstring(" of block "));
      CHECK_THAT(f.run(exchange, 32, cluster, options), ContainsSubstring("race: ") || ContainsSubstring("hangs"));
      CHECK_THAT(f.run(signal, 1, cluster, options),
                 ContainsSubstring("race: ld_shared") && ContainsSubstring("its writer, an st_async_cluster"));
      CHECK_THAT(f.run(signal, 2, cluster, options),
                 ContainsSubstring("which has ended") ||
                     ContainsSubstring("the block ends, not synchronised with what thread"));
      CHECK_THAT(f.run(signal, 1 | 4, cluster, options),
                 ContainsSubstring("the block ends, not synchronised with what an st_async_cluster"));
      CHECK_THAT(f.run(told, 1, cluster, options), ContainsSubstring("race: ") || ContainsSubstring("hangs") ||
                                                       ContainsSubstring("all 1 threads have arrived in phase"));
      CHECK_THAT(f.run(told, 2, cluster, options), ContainsSubstring("hangs") || ContainsSubstring("race: "));
      CHECK_THAT(f.run(told, 4, cluster, options),
                 ContainsSubstring("st_async_cluster to block") && ContainsSubstring("with a barrier of block"));
      CHECK_THAT(f.run(told, 8, cluster, options), ContainsSubstring("race: ") || ContainsSubstring("which has ended"));
      CHECK_THAT(f.run(told, 16, cluster, options), ContainsSubstring("which may not have started") ||
                                                        ContainsSubstring("there is no initialised mbarrier") ||
                                                        ContainsSubstring("it has not synchronised with"));
      CHECK_THAT(f.run(told, 32, cluster, options),
                 ContainsSubstring("which has ended") || ContainsSubstring("the block ends, not synchronised"));
      for (const int writer_fences : {0, 2})
        CHECK_THAT(f.run(staged, 1 | writer_fences, cluster, options),
                   ContainsSubstring("without a fence_proxy_async in block"));
      CHECK_THAT(f.run(partials, 1, cluster, options), ContainsSubstring("ld_global_cg"));
    }
}

TEST_CASE("The emulator's faults in a cluster name the operation and the block", "[emulator]") {
  ClusterFixture f;
  const auto fault = [&](int wrong) { return f.run(misuse, wrong, 2); };
  CHECK(fault(-1) == "");
  CHECK_THAT(fault(0),
             ContainsSubstring("thread 3 (warp 0): cluster_arrive_relaxed for a second time without a cluster_wait"));
  CHECK_THAT(fault(1), ContainsSubstring("cluster_wait without a cluster_arrive_relaxed"));
  CHECK_THAT(fault(2), ContainsSubstring("thread 9 (warp 0): ends between cluster_arrive_relaxed and cluster_wait"));
  CHECK_THAT(fault(3), ContainsSubstring("hangs") && ContainsSubstring("block 0, threads 0-0: at barrier 1") &&
                           ContainsSubstring("block 0, threads 1-63: at the cluster's barrier, at which 127 of 128 "
                                             "threads have arrived") &&
                           ContainsSubstring("block 1, threads 0-63: at the cluster's barrier"));
  CHECK_THAT(fault(4), ContainsSubstring("ld_shared at 0x1000400, an address of the cluster"));
  CHECK_THAT(fault(5), ContainsSubstring("st_async_cluster at 0x400, which is not an address of the cluster"));
  CHECK_THAT(fault(6), ContainsSubstring("map_to_rank to block 2 of a cluster of 2"));
  CHECK_THAT(fault(7), ContainsSubstring("map_to_rank at 0x2000400, an address of the cluster"));
  CHECK_THAT(fault(8), ContainsSubstring("st_async_cluster at 0x800, which is not an address of the cluster"));
  CHECK_THAT(fault(9),
             ContainsSubstring("mbarrier_arrive_cluster: there is no initialised mbarrier at 0x400 in block 1"));
  CHECK_THAT(fault(10), ContainsSubstring("mbarrier_wait_parity at 0x1000800, an address of the cluster"));
  CHECK_THAT(fault(11), ContainsSubstring("tma_load_multicast_3d to blocks 0x0 of a cluster of 2"));
  CHECK_THAT(fault(12), ContainsSubstring("tma_load_multicast_3d to blocks 0x5 of a cluster of 2"));
  CHECK_THAT(fault(13), ContainsSubstring("tma_load_3d at 0x1000400, an address of the cluster"));
  for (const EmulatorOptions& options : adversaries(3))
    CHECK_THAT(f.run(misuse, 15, 2, options), ContainsSubstring("mbarrier_arrive_cluster"));
  CHECK_THAT(fault(16), ContainsSubstring("not a multiple of 16"));
  CHECK_THAT(fault(17), ContainsSubstring("outside of the block's"));
  CHECK_THAT(fault(18), ContainsSubstring("which is not an address that map_to_rank gave"));
  CHECK_THAT(fault(19), ContainsSubstring("st_async_cluster at shared address 0x800, where an mbarrier is"));
  for (const EmulatorOptions& options : adversaries(3)) {
    INFO("seed " << options.seed);
    CHECK_THAT(f.run(misuse, 20, 2, options),
               ContainsSubstring("mbarrier_arrive_cluster at block") && ContainsSubstring("which has ended"));
    CHECK_THAT(f.run(misuse, 21, 2, options),
               ContainsSubstring("st_async_cluster at block") && ContainsSubstring("which has ended"));
    CHECK_THAT(f.run(misuse, 22, 2, options),
               ContainsSubstring("tma_load_multicast_3d at block") && ContainsSubstring("which has ended"));
  }
  CHECK(fault(-1) == "");
}

TEST_CASE("The emulator's shared memory begins at the same address in all blocks of a cluster", "[emulator]") {
  ClusterFixture f;
  std::set<std::uint32_t> bases_seen;
  for (int seed = 1; seed < 20; ++seed) {
    EmulatorOptions options;
    options.seed = std::uint64_t(seed);
    REQUIRE(f.run(bases, 0, 4, options) == "");
    for (int block = 0; block < 4 * f.clusters; ++block)
      REQUIRE(f.d[std::size_t(block * 64)] == f.d[std::size_t(block / 4 * 4 * 64)]);
    if (f.d[0] != f.d[4 * 64]) bases_seen.insert(f.d[0]);
  }
  CHECK(bases_seen.size() > 4);
}

TEST_CASE("The emulator refuses clusters that a device does not have", "[emulator]") {
  const auto refused = [](const char* architecture, int grid, int cluster) -> std::string {
    const auto backend = make_emulator_backend({.architecture = architecture});
    const auto kernel =
        backend->load(backend->compile({emulator_text(cluster_kernels), "kernel", architecture, "test"}), 1 << 20);
    device::Arguments p{};
    std::vector<std::uint32_t> d(64 * 32);
    p.d = d.data();
    p.m = bases;
    return refusal(ErrorCode::launch_failed,
                   [&] { backend->launch(*kernel, emulator_shape(grid, 64, 1024, cluster), bytes_of(p), nullptr); });
  };
  CHECK(refused("sm_90a", 16, 8) == "");
  CHECK(refused("sm_89", 16, 1) == "");
  CHECK_THAT(refused("sm_90a", 15, 2), ContainsSubstring("a grid of 15 blocks in clusters of 2"));
  CHECK_THAT(refused("sm_90a", 12, 3), ContainsSubstring("clusters of 3 blocks, not 1, 2, 4 or 8"));
  CHECK_THAT(refused("sm_90a", 16, 16), ContainsSubstring("not 1, 2, 4 or 8"));
  CHECK_THAT(refused("sm_90a", 16, 0), ContainsSubstring("not 1, 2, 4 or 8"));
  CHECK_THAT(refused("sm_89", 16, 2), ContainsSubstring("which sm_89 does not have"));
}
