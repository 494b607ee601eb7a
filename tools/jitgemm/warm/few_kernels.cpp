#include "warm/list.hpp"

namespace jitgemm::cli {

// `jitgemm wisdom cover --any-types --kernels 24,48` of streamk_aligned8_300, llm_decode_49, seed_squares_31,
// hand_al, hand_dec and hand_sq.csv in tools/results/h200/between: the first 24 and the first 48 are the sets.
const char* const few_kernels_sm90 =
    R"(m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x64x64 group_m=8 stages=12 warps=4 cluster=1x4x1 schedule=persistent grid=120
m=1112 n=6424 k=3568 a=f16 b=f16 d=f16; sm90 128x128x64 group_m=8 stages=6 warps=8 cluster=1x2x1 swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1120 n=160 k=3528 a=f16 b=f16 d=f16; sm90 64x32x64 group_m=8 stages=12 warps=4 cluster=1x2x1 swap_ab=true schedule=split_k splits=2
m=1128 n=784 k=7288 a=f16 b=f16 d=f16; sm90 128x64x64 group_m=8 stages=8 warps=8 cluster=1x2x1 swap_ab=true schedule=split_k splits=2
m=1208 n=2472 k=456 a=f16 b=f16 d=f16; sm90 128x104x64 group_m=8 stages=6 warps=8 cluster=1x2x1 swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1 n=2112 k=7168 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x16x64 group_m=8 stages=12 warps=4 cluster=1x1x2 swap_ab=true schedule=data_parallel
m=1416 n=6168 k=1224 a=f16 b=f16 d=f16; sm90 192x96x64 group_m=8 stages=5 warps=8 cluster=1x2x1 swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1280 n=1280 k=1280 a=f16 b=f16 d=f16; sm90 64x112x64 group_m=4 stages=5 warps=4 cluster=2x2x1 swap_ab=true schedule=data_parallel
m=1088 n=3272 k=240 a=f16 b=f16 d=f16; sm90 128x96x64 group_m=4 stages=6 warps=8 cluster=2x2x1 swap_ab=true schedule=persistent grid=120
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x16x64 group_m=4 stages=12 warps=8 cluster=2x1x1 swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=128 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x80x64 group_m=4 stages=12 warps=4 cluster=2x4x1 schedule=data_parallel
m=256 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x120x64 group_m=8 stages=6 warps=8 cluster=1x4x1 schedule=persistent grid=120
m=1112 n=6424 k=3568 a=f16 b=f16 d=f16; sm90 192x112x64 group_m=8 stages=5 warps=8 cluster=1x2x1 swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1024 n=1024 k=1024 a=f16 b=f16 d=f16; sm90 64x80x64 group_m=4 stages=6 warps=4 cluster=2x2x1 swap_ab=true schedule=data_parallel
m=1120 n=160 k=3528 a=f16 b=f16 d=f16; sm90 64x64x64 group_m=8 stages=12 warps=4 cluster=1x4x2 swap_ab=true schedule=data_parallel
m=1280 n=1280 k=1280 a=f16 b=f16 d=f16; sm90 192x80x64 group_m=8 stages=5 warps=12 cluster=1x4x2 swap_ab=true schedule=data_parallel
m=128 n=232 k=2384 a=f16 b=f16 d=f16; sm90 64x32x64 group_m=8 stages=12 warps=4 cluster=1x2x4 swap_ab=true schedule=data_parallel
m=1664 n=1664 k=1664 a=f16 b=f16 d=f16; sm90 128x168x64 group_m=8 stages=5 warps=8 cluster=1x2x1 swap_ab=true schedule=split_k splits=2
m=1016 n=720 k=2640 a=f16 b=f16 d=f16; sm90 64x56x64 group_m=8 stages=7 warps=4 cluster=1x4x1 swap_ab=true schedule=data_parallel
m=1088 n=3272 k=240 a=f16 b=f16 d=f16; sm90 128x112x64 group_m=8 stages=6 warps=8 cluster=1x2x1 swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1000 n=576 k=888 a=f16 b=f16 d=f16; sm90 64x32x64 group_m=4 stages=9 warps=4 cluster=2x1x1 swap_ab=true schedule=data_parallel
m=1384 n=4240 k=1128 a=f16 b=f16 d=f16; sm90 192x144x64 group_m=8 stages=4 warps=12 cluster=1x2x1 swap_ab=true schedule=persistent grid=132
m=160 n=1792 k=1720 a=f16 b=f16 d=f16; sm90 64x48x64 group_m=8 stages=12 warps=4 cluster=1x4x2 swap_ab=true schedule=data_parallel
m=1120 n=160 k=3528 a=f16 b=f16 d=f16; sm90 64x64x64 group_m=8 stages=12 warps=4 cluster=1x1x2 swap_ab=true schedule=data_parallel
m=2104 n=3592 k=1688 a=f16 b=f16 d=f16; sm90 256x88x64 group_m=8 stages=4 warps=8 cluster=1x2x1 swap_ab=true schedule=stream_k_two_tile grid=132
m=1016 n=720 k=2640 a=f16 b=f16 d=f16; sm90 64x40x64 group_m=8 stages=8 warps=4 cluster=1x4x1 swap_ab=true schedule=data_parallel
m=1128 n=784 k=7288 a=f16 b=f16 d=f16; sm90 128x96x64 group_m=4 stages=6 warps=8 cluster=2x2x2 swap_ab=true schedule=data_parallel
m=1416 n=6168 k=1224 a=f16 b=f16 d=f16; sm90 192x120x64 group_m=8 stages=4 warps=12 cluster=1x2x1 swap_ab=true schedule=persistent grid=132
m=1088 n=3272 k=240 a=f16 b=f16 d=f16; sm90 192x96x64 group_m=8 stages=6 warps=12 cluster=1x4x1 swap_ab=true schedule=data_parallel
m=1320 n=8008 k=1768 a=f16 b=f16 d=f16; sm90 192x152x64 group_m=8 stages=5 warps=12 swap_ab=true schedule=data_parallel
m=1128 n=784 k=7288 a=f16 b=f16 d=f16; sm90 128x72x64 group_m=8 stages=7 warps=8 cluster=1x4x1 swap_ab=true schedule=data_parallel
m=1088 n=3272 k=240 a=f16 b=f16 d=f16; sm90 128x96x64 group_m=8 stages=6 warps=8 cluster=1x4x1 swap_ab=true consumers=ping_pong schedule=persistent grid=120
m=1 n=7168 k=16384 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x128x64 group_m=4 stages=6 warps=8 cluster=2x1x4 swap_ab=true schedule=data_parallel
m=1112 n=6424 k=3568 a=f16 b=f16 d=f16; sm90 128x160x64 group_m=4 stages=5 warps=8 cluster=2x1x1 swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1104 n=2680 k=8176 a=f16 b=f16 d=f16; sm90 128x224x64 group_m=4 stages=4 warps=8 cluster=2x1x1 schedule=data_parallel
m=1208 n=2472 k=456 a=f16 b=f16 d=f16; sm90 128x112x64 group_m=4 stages=6 warps=8 cluster=2x4x1 swap_ab=true schedule=persistent grid=120
m=1024 n=1024 k=1024 a=f16 b=f16 d=f16; sm90 128x96x64 group_m=4 stages=8 warps=8 cluster=2x4x1 swap_ab=true schedule=data_parallel
m=1112 n=6424 k=3568 a=f16 b=f16 d=f16; sm90 128x192x64 group_m=8 stages=4 warps=8 cluster=1x2x1 schedule=persistent grid=132
m=1704 n=3456 k=376 a=f16 b=f16 d=f16; sm90 192x88x64 group_m=8 stages=5 warps=12 cluster=1x4x1 swap_ab=true schedule=persistent grid=120
m=128 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x112x64 group_m=8 stages=5 warps=4 cluster=1x2x1 schedule=data_parallel
m=2104 n=3592 k=1688 a=f16 b=f16 d=f16; sm90 192x176x64 group_m=4 stages=3 warps=12 cluster=2x1x1 swap_ab=true schedule=persistent grid=132
m=1152 n=1152 k=1152 a=f16 b=f16 d=f16; sm90 64x56x64 group_m=8 stages=12 warps=8 cluster=1x2x1 swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1408 n=6616 k=6512 a=f16 b=f16 d=f16; sm90 128x120x64 group_m=8 stages=6 warps=8 cluster=1x2x1 swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=128 n=2112 k=7168 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x32x64 group_m=4 stages=9 warps=8 cluster=2x1x1 swap_ab=true schedule=split_k splits=3
m=1120 n=160 k=3528 a=f16 b=f16 d=f16; sm90 64x32x64 group_m=8 stages=12 warps=4 cluster=1x4x2 swap_ab=true schedule=data_parallel
m=1024 n=1024 k=1024 a=f16 b=f16 d=f16; sm90 64x96x64 group_m=4 stages=10 warps=4 cluster=2x4x1 swap_ab=true schedule=persistent grid=120
m=1104 n=2680 k=8176 a=f16 b=f16 d=f16; sm90 128x80x64 group_m=4 stages=7 warps=8 cluster=2x2x1 swap_ab=true schedule=persistent grid=120
m=1024 n=1024 k=1024 a=f16 b=f16 d=f16; sm90 128x96x64 group_m=2 stages=6 warps=8 cluster=4x1x2 swap_ab=true schedule=data_parallel
)";

}  // namespace jitgemm::cli
