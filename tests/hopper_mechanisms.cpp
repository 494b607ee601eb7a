#include "gemm_cases.hpp"

namespace jitgemm::test {
namespace {

constexpr Layout rows = Layout::row_major, columns = Layout::column_major;

/// Consumers of 64 rows each.
KernelConfig tile(int block_n, int consumers = 1, int stages = 3) {
  return {.main_loop = MainLoop::sm90,
          .block_m = consumers * 64,
          .block_n = block_n,
          .block_k = 64,
          .group_m = 2,
          .stages = stages,
          .warps = consumers * 4};
}

KernelConfig of_rows(KernelConfig config, int block_m) {
  config.block_m = block_m;
  return config;
}

KernelConfig in_cluster(KernelConfig config, int m, int n, int k = 1) {
  config.cluster_m = m, config.cluster_n = n, config.cluster_k = k;
  return config;
}

/// Of a kernel that serves all.
KernelConfig in_any_cluster(KernelConfig config, int m, int n, int k = 1) {
  config = in_cluster(config, m, n, k);
  config.cluster_at_launch = true;
  return config;
}

KernelConfig swapped(KernelConfig config) {
  config.swap_ab = true;
  return config;
}

KernelConfig ping_pong(int block_m, int block_n, int stages = 3) {
  KernelConfig config = tile(block_n, 2, stages);
  config.block_m = block_m;
  config.ping_pong = true;
  return config;
}

KernelConfig packed(KernelConfig config, bool a, bool b) {
  config.pack_a = a, config.pack_b = b;
  return config;
}

KernelConfig of_bytes(KernelConfig config) {
  config.block_k = 128;
  return config;
}

/// Parts of tiles, a cluster each.
KernelConfig cut(KernelConfig config, int splits) {
  config.schedule = Schedule::split_k;
  config.splits = splits;
  return config;
}

/// `ctas` clusters.
KernelConfig dealt(KernelConfig config, Schedule schedule, int ctas, int splits = 1) {
  config.schedule = schedule;
  config.splits = splits;
  config.grid = ctas * config.cluster_m * config.cluster_n * config.cluster_k;
  return config;
}

}  // namespace

std::vector<Mechanism> hopper_mechanisms() {
  const Schedule persistent = Schedule::persistent, stream_k = Schedule::stream_k, split_k = Schedule::split_k;
  std::vector<Mechanism> mechanisms;
  const auto add = [&](const char* part, const Problem& problem, const KernelConfig& config, int align_ab = 16,
                       int align_d = 16) {
    const int align_c = align_d;
    mechanisms.push_back({part, plain_case(problem, config, {align_ab, align_ab, align_c, align_d})});
  };

  add("cluster", {.m = 311, .n = 123, .k = 313, .b = {.layout = columns}},
      dealt(in_cluster(tile(64, 1, 2), 2, 1), persistent, 2));
  add("cluster", {.m = 150, .n = 300, .k = 313, .a = {.layout = columns}, .beta = 1},
      dealt(in_cluster(tile(64), 1, 2), persistent, 2));
  add("cluster", {.m = 200, .n = 201, .k = 313, .epilogue = {.bias = Bias::along_n}},
      dealt(in_cluster(tile(64, 1, 2), 2, 2), stream_k, 3));
  add("cluster", {.m = 300, .n = 100, .k = 440, .a = {bf16}, .b = {.type = bf16, .layout = columns}, .d = {f32}},
      dealt(in_cluster(tile(96, 2), 4, 1), split_k, 2, 3));
  add("cluster", {.m = 90, .n = 70, .k = 200, .batch = 2}, in_cluster(tile(64), 4, 2));  // most blocks lie outside
  // Parts that come to more rows than the tile has: 40 for 72, 16 for 40.
  add("cluster", {.m = 200, .n = 150, .k = 313, .b = {.layout = columns}},
      dealt(in_cluster(tile(72, 1, 2), 2, 2), persistent, 2));
  add("cluster", {.m = 100, .n = 300, .k = 250, .beta = 1}, in_cluster(swapped(tile(40)), 4, 1));
  add("cluster", {.m = 311, .n = 123, .k = 313, .b = {.layout = columns}},
      dealt(in_any_cluster(tile(64, 1, 2), 2, 2), persistent, 2));
  add("cluster", {.m = 150, .n = 300, .k = 313, .a = {.layout = columns}, .beta = 1},
      dealt(in_any_cluster(ping_pong(64, 64), 1, 4), persistent, 1));
  add("cluster", {.m = 90, .n = 170, .k = 440, .batch = 2}, in_any_cluster(tile(72), 1, 1));
  add("cluster_sum", {.m = 100, .n = 130, .k = 440}, in_any_cluster(swapped(tile(64)), 2, 1, 4));

  add("ping_pong", {.m = 311, .n = 123, .k = 250}, dealt(ping_pong(64, 64, 2), persistent, 2));
  add("ping_pong", {.m = 200, .n = 201, .k = 313, .beta = 1}, dealt(ping_pong(128, 72), stream_k, 3));
  add("ping_pong", {.m = 400, .n = 201, .k = 313}, dealt(ping_pong(192, 72), persistent, 2));
  add("ping_pong", {.m = 201, .n = 150, .k = 440, .b = {.layout = columns}, .epilogue = {.bias = Bias::along_m}},
      dealt(in_cluster(ping_pong(64, 64), 2, 1), split_k, 2, 3));
  add("ping_pong", {.m = 311, .n = 123, .k = 500, .a = {e4m3}, .b = {.type = e4m3, .layout = columns}, .d = {bf16}},
      dealt(of_bytes(in_cluster(ping_pong(64, 64), 1, 2)), persistent, 1));
  add("ping_pong",
      {.m = 200,
       .n = 123,
       .k = 500,
       .a = {e5m2},
       .b = {.type = e4m3, .layout = columns},
       .d = {f32},
       .accumulation = Accumulation::promoted},
      dealt(of_bytes(ping_pong(64, 64, 2)), persistent, 2));
  for (const int block_n : {48, 96})  // promoted at once, and 64 rows at a time
    add("ping_pong",
        {.m = 400,
         .n = 123,
         .k = 500,
         .a = {e4m3},
         .b = {.type = e4m3, .layout = columns},
         .d = {bf16},
         .accumulation = Accumulation::promoted},
        dealt(of_bytes(ping_pong(192, block_n, 2)), persistent, 2));

  add("cluster_sum", {.m = 200, .n = 100, .k = 313}, in_cluster(tile(64, 2), 1, 1, 2));
  add("cluster_sum", {.m = 150, .n = 100, .k = 313, .b = {.layout = columns}, .beta = 1},
      in_cluster(tile(64), 2, 1, 4));
  add("cluster_sum",
      {.m = 100, .n = 150, .k = 400, .batch = 2, .a = {s8}, .b = {.type = s8, .layout = columns}, .d = {s32}},
      of_bytes(swapped(in_cluster(tile(32, 1, 4), 1, 2, 2))));
  // Parts of a tile, each of which a cluster cuts again: many small ones, and few that are large.
  add("cluster_sum", {.m = 130, .n = 100, .k = 900, .b = {.layout = columns}, .beta = 1},
      cut(in_cluster(tile(32, 1, 4), 1, 1, 2), 7));
  add("cluster_sum", {.m = 250, .n = 200, .k = 600, .epilogue = {.bias = Bias::along_n}},
      cut(in_cluster(tile(128, 2, 4), 2, 1, 2), 3));

  // By TMA, with a narrow end that threads copy.
  add("store", {.m = 300, .n = 304, .k = 130, .beta = 1}, dealt(tile(136), persistent, 2));
  add("store", {.m = 200, .n = 304, .k = 313}, dealt(ping_pong(64, 72), stream_k, 3));
  add("store", {.m = 211, .n = 300, .k = 250, .d = {f32}}, dealt(tile(40, 3), split_k, 2, 2));
  add("store", {.m = 200, .n = 304, .k = 300, .a = {e4m3}, .b = {.type = e4m3, .layout = columns}, .d = {e4m3}},
      dealt(of_bytes(tile(144)), persistent, 2));
  add("store", {.m = 150, .n = 304, .k = 313}, in_cluster(tile(144), 1, 1, 2));
  // By TMA alone, then by rows through shared memory, then straight.
  add("store", {.m = 300, .n = 300, .k = 130, .beta = 1}, dealt(tile(136), persistent, 2), 16, 16);
  add("store", {.m = 300, .n = 300, .k = 130, .epilogue = {.bias = Bias::along_n}},
      dealt(swapped(tile(136, 2)), persistent, 1));
  add("store",
      {.m = 300, .n = 300, .k = 200, .a = {e4m3}, .b = {.type = e5m2, .layout = columns}, .d = {e4m3}, .beta = 1},
      dealt(of_bytes(swapped(tile(112))), persistent, 2));
  add("store", {.m = 200, .n = 300, .k = 130, .d = {f32}, .epilogue = {.bias = Bias::along_m}},
      dealt(swapped(tile(72)), persistent, 2));
  add("store", {.m = 211, .n = 300, .k = 440}, dealt(tile(40, 3), split_k, 2, 2));
  add("store", {.m = 201, .n = 169, .k = 136, .b = {.layout = columns}, .beta = 1}, dealt(tile(136), persistent, 2), 16,
      2);
  mechanisms.push_back(mechanisms.back());  // with rows on and beside 4-byte boundaries in turn
  mechanisms.back().gemm.problem.d.ld = 169;
  mechanisms.back().gemm.offset_d = 0;
  add("store", {.m = 171, .n = 201, .k = 136, .b = {.layout = columns}, .epilogue = {.bias = Bias::along_n}},
      dealt(swapped(tile(136, 2)), persistent, 2), 16, 2);
  add("store", {.m = 170, .n = 202, .k = 136, .a = {bf16}, .b = {.type = bf16, .layout = columns}, .d = {bf16}},
      dealt(swapped(tile(72)), persistent, 3), 16, 4);
  add("store", {.m = 201, .n = 169, .k = 136, .b = {.layout = columns}, .d = {f32}, .beta = 1},
      dealt(tile(104), persistent, 2), 16, 4);
  add("store", {.m = 201, .n = 169, .k = 200, .a = {e5m2}, .b = {.type = e4m3, .layout = columns}, .d = {e5m2}},
      dealt(of_bytes(swapped(tile(80))), persistent, 2), 16, 1);

  // One tile a block: through the ring, by as many stages as D needs, and by fewer.
  add("store", {.m = 200, .n = 304, .k = 330}, in_cluster(tile(136, 2), 1, 2));
  add("store", {.m = 100, .n = 300, .k = 330, .d = {f32}}, tile(104, 1, 2));
  add("store", {.m = 300, .n = 300, .k = 330, .beta = 1}, in_cluster(tile(136, 2), 1, 2));
  add("store", {.m = 200, .n = 300, .k = 330, .a = {.layout = columns}, .d = {f32}},
      swapped(of_rows(tile(120, 1, 2), 128)));
  add("store", {.m = 300, .n = 300, .k = 500, .a = {e4m3}, .b = {.type = e5m2, .layout = columns}, .d = {e4m3}},
      of_bytes(in_cluster(swapped(tile(112, 2, 2)), 2, 1)));
  add("store", {.m = 201, .n = 169, .k = 136, .b = {.layout = columns}, .beta = 1}, tile(136, 2), 16, 2);

  add("packed", {.m = 201, .n = 169, .k = 301}, dealt(packed(in_cluster(tile(64), 2, 1), true, true), stream_k, 2), 2,
      2);
  add("packed",
      {.m = 201,
       .n = 169,
       .k = 301,
       .a = {.type = e4m3, .layout = columns},
       .b = {.type = e4m3, .layout = rows},
       .d = {f16}},
      dealt(of_bytes(packed(swapped(ping_pong(64, 64)), true, true)), persistent, 2), 1, 2);
  return mechanisms;
}

}  // namespace jitgemm::test
