#include "warm/list.hpp"

namespace jitgemm::cli {

// `jitgemm wisdom cover --measured --any-types --kernels 24,48` of what 60 kernels, and each shape's tuned choice, took
// on an H200 for 62 aligned shapes, in two files, 22 of decoding and 15 squares (tools/results/NOTES.md, 68): the first
// 24 and the first 48 are the sets. Most choose their cluster at launch.
const char* const few_kernels_sm90 =
    R"(m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x128x64 group_m=4 stages=8 warps=8 cluster=1x4x1 cluster_at_launch=true consumers=ping_pong schedule=persistent grid=120
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x32x64 group_m=4 stages=12 warps=4 cluster=2x1x1 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x160x64 group_m=4 stages=5 warps=8 cluster=2x1x1 cluster_at_launch=true swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x96x64 group_m=4 stages=11 warps=4 cluster=2x1x1 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x16x64 group_m=4 stages=12 warps=4 cluster=1x1x2 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x128x64 group_m=4 stages=6 warps=8 cluster_at_launch=true consumers=ping_pong schedule=persistent grid=132
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x96x64 group_m=4 stages=8 warps=8 cluster=4x1x1 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x64x64 group_m=4 stages=12 warps=4 cluster=2x1x1 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x32x64 group_m=4 stages=12 warps=4 cluster=2x1x4 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 192x96x64 group_m=4 stages=5 warps=8 cluster=2x1x1 cluster_at_launch=true swap_ab=true consumers=ping_pong schedule=persistent
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x64x64 group_m=4 stages=12 warps=4 cluster=4x1x2 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x112x64 group_m=4 stages=6 warps=8 cluster=2x1x1 cluster_at_launch=true swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x32x64 group_m=4 stages=12 warps=4 cluster=1x1x2 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x136x64 group_m=4 stages=5 warps=8 cluster_at_launch=true swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x128x64 group_m=4 stages=9 warps=4 cluster=2x1x1 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x72x64 group_m=4 stages=12 warps=4 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=4184 n=136 k=7592 a=f16 b=f16 d=f16; sm90 192x80x64 group_m=4 stages=5 warps=12 cluster=1x4x2 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=3624 n=1088 k=2312 a=f16 b=f16 d=f16; sm90 192x168x64 group_m=4 stages=5 warps=12 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x16x64 group_m=4 stages=11 warps=8 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x80x64 group_m=4 stages=11 warps=4 cluster=1x1x2 cluster_at_launch=true schedule=data_parallel
m=136 n=1656 k=200 a=f16 b=f16 d=f16; sm90 64x40x64 group_m=4 stages=12 warps=4 cluster=2x4x1 swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x56x64 group_m=4 stages=12 warps=4 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1360 n=256 k=3544 a=f16 b=f16 d=f16; sm90 64x96x64 group_m=4 stages=10 warps=4 cluster=4x1x2 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=2616 n=1976 k=528 a=f16 b=f16 d=f16; sm90 128x120x64 group_m=2 stages=6 warps=8 cluster=4x2x1 swap_ab=true consumers=ping_pong schedule=persistent grid=120
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x40x64 group_m=4 stages=12 warps=4 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x144x64 group_m=4 stages=5 warps=8 cluster=2x1x1 cluster_at_launch=true swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=304 n=432 k=6008 a=f16 b=f16 d=f16; sm90 64x40x64 group_m=8 stages=12 warps=4 cluster=1x4x1 swap_ab=true schedule=split_k splits=2
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x200x64 group_m=4 stages=5 warps=8 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=3480 n=536 k=5576 a=f16 b=f16 d=f16; sm90 192x88x64 group_m=4 stages=6 warps=12 cluster=1x4x1 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 192x96x64 group_m=4 stages=6 warps=12 cluster=2x1x1 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x112x64 group_m=4 stages=7 warps=8 cluster=1x4x1 cluster_at_launch=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x96x64 group_m=4 stages=9 warps=8 cluster=1x2x1 cluster_at_launch=true consumers=ping_pong schedule=persistent grid=132
m=4144 n=224 k=640 a=f16 b=f16 d=f16; sm90 64x144x64 group_m=2 stages=8 warps=4 cluster=4x1x1 swap_ab=true schedule=data_parallel
m=336 n=4064 k=1520 a=f16 b=f16 d=f16; sm90 64x168x64 group_m=4 stages=7 warps=4 cluster=1x2x1 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x120x64 group_m=4 stages=7 warps=8 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1128 n=784 k=7288 a=f16 b=f16 d=f16; sm90 128x144x64 group_m=4 stages=5 warps=8 cluster=1x4x2 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1272 n=144 k=5688 a=f16 b=f16 d=f16; sm90 64x160x64 group_m=2 stages=6 warps=4 cluster=4x1x2 schedule=split_k splits=3
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x112x64 group_m=4 stages=10 warps=4 cluster=2x1x1 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x16x64 group_m=4 stages=12 warps=4 cluster=2x1x1 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1208 n=2472 k=456 a=f16 b=f16 d=f16; sm90 128x104x64 group_m=4 stages=6 warps=8 cluster=2x4x1 swap_ab=true consumers=ping_pong schedule=persistent grid=120
m=3200 n=3200 k=3200 a=f16 b=f16 d=f16; sm90 192x104x64 group_m=4 stages=5 warps=8 cluster_at_launch=true swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x32x64 group_m=4 stages=11 warps=8 cluster=4x1x1 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x128x64 group_m=4 stages=7 warps=8 cluster=4x1x1 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=368 n=1544 k=3464 a=f16 b=f16 d=f16; sm90 128x96x64 group_m=4 stages=6 warps=8 cluster=1x4x2 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x152x64 group_m=4 stages=5 warps=8 cluster_at_launch=true swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=224 n=2544 k=944 a=f16 b=f16 d=f16; sm90 64x96x64 group_m=4 stages=9 warps=4 cluster=4x2x1 cluster_at_launch=true schedule=data_parallel
m=1280 n=1280 k=1280 a=f16 b=f16 d=f16; sm90 64x216x64 group_m=4 stages=6 warps=4 cluster_at_launch=true swap_ab=true schedule=data_parallel
m=6496 n=1144 k=2112 a=f16 b=f16 d=f16; sm90 128x224x64 group_m=4 stages=4 warps=8 cluster_at_launch=true swap_ab=true schedule=persistent grid=132
)";

}  // namespace jitgemm::cli
