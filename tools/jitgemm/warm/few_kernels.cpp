#include "warm/list.hpp"

namespace jitgemm::cli {

// `jitgemm wisdom cover --measured --any-types --kernels 24,48` of what 257 kernels took on an H100 for 300 aligned
// shapes, in two files, 49 of decoding and 31 squares (tools/results/NOTES.md, 58): the first 24 and the first 48 are
// the sets.
const char* const few_kernels_sm90 =
    R"(m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x128x64 group_m=4 stages=8 warps=8 cluster=2x1x1 consumers=ping_pong schedule=persistent grid=132
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x32x64 group_m=8 stages=12 warps=4 swap_ab=true schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x160x64 group_m=4 stages=5 warps=8 cluster=2x1x1 swap_ab=true consumers=ping_pong schedule=persistent
m=1120 n=160 k=3528 a=f16 b=f16 d=f16; sm90 64x64x64 group_m=8 stages=12 warps=4 cluster=1x4x2 swap_ab=true schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x96x64 group_m=2 stages=11 warps=4 cluster=4x2x1 swap_ab=true schedule=data_parallel
m=1000 n=576 k=888 a=f16 b=f16 d=f16; sm90 128x112x64 group_m=4 stages=6 warps=8 cluster=2x4x1 swap_ab=true consumers=ping_pong schedule=persistent
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x128x64 group_m=2 stages=6 warps=8 cluster=4x2x1 swap_ab=true consumers=ping_pong schedule=persistent grid=120
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x64x64 group_m=8 stages=8 warps=8 cluster=1x4x1 swap_ab=true schedule=data_parallel
m=1000 n=576 k=888 a=f16 b=f16 d=f16; sm90 192x96x64 group_m=8 stages=6 warps=12 cluster=1x4x1 swap_ab=true schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x16x64 group_m=8 stages=12 warps=4 cluster=1x1x2 swap_ab=true schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x144x64 group_m=4 stages=5 warps=8 cluster=2x1x1 swap_ab=true consumers=ping_pong schedule=persistent
m=1 n=7168 k=16384 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x96x64 group_m=4 stages=8 warps=8 cluster=2x4x1 swap_ab=true schedule=data_parallel
m=1000 n=576 k=888 a=f16 b=f16 d=f16; sm90 128x128x64 group_m=2 stages=6 warps=8 cluster=4x2x1 consumers=ping_pong schedule=persistent
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x64x64 group_m=4 stages=12 warps=4 cluster=2x4x1 schedule=data_parallel
m=1120 n=160 k=3528 a=f16 b=f16 d=f16; sm90 64x48x64 group_m=8 stages=12 warps=4 cluster=1x4x2 swap_ab=true schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x168x64 group_m=8 stages=4 warps=8 swap_ab=true consumers=ping_pong schedule=persistent
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x96x64 group_m=2 stages=11 warps=4 cluster=4x1x1 swap_ab=true schedule=data_parallel
m=1 n=7168 k=16384 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x40x64 group_m=4 stages=12 warps=4 cluster=2x4x1 swap_ab=true schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x128x64 group_m=8 stages=6 warps=8 swap_ab=true consumers=ping_pong schedule=persistent
m=1016 n=720 k=2640 a=f16 b=f16 d=f16; sm90 128x152x64 group_m=4 stages=5 warps=8 cluster=2x4x1 swap_ab=true consumers=ping_pong schedule=persistent
m=128 n=232 k=2384 a=f16 b=f16 d=f16; sm90 64x32x64 group_m=8 stages=12 warps=4 cluster=1x2x4 swap_ab=true schedule=data_parallel
m=1 n=24576 k=1536 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 192x144x64 group_m=8 stages=4 warps=12 cluster=1x2x1 swap_ab=true schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x64x64 group_m=4 stages=12 warps=4 cluster=2x1x1 schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 192x112x64 group_m=8 stages=5 warps=8 cluster=1x2x1 swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x80x64 group_m=4 stages=8 warps=8 cluster=2x4x1 swap_ab=true schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x160x64 group_m=2 stages=6 warps=8 cluster=4x1x1 swap_ab=true consumers=ping_pong schedule=persistent grid=120
m=1000 n=576 k=888 a=f16 b=f16 d=f16; sm90 128x136x64 group_m=4 stages=5 warps=8 cluster=2x4x1 swap_ab=true consumers=ping_pong schedule=persistent
m=144 n=2184 k=2112 a=f16 b=f16 d=f16; sm90 64x144x64 group_m=2 stages=7 warps=4 cluster=4x1x2 swap_ab=true schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x32x64 group_m=8 stages=9 warps=4 cluster=1x4x1 swap_ab=true schedule=data_parallel
m=2208 n=280 k=1872 a=f16 b=f16 d=f16; sm90 64x112x64 group_m=4 stages=10 warps=4 cluster=2x4x1 swap_ab=true schedule=data_parallel
m=2760 n=5344 k=1576 a=f16 b=f16 d=f16; sm90 192x160x64 group_m=8 stages=4 warps=12 cluster=1x2x1 swap_ab=true schedule=persistent grid=132
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x64x64 group_m=8 stages=12 warps=4 schedule=data_parallel
m=1000 n=576 k=888 a=f16 b=f16 d=f16; sm90 128x120x64 group_m=8 stages=6 warps=8 cluster=1x4x1 swap_ab=true consumers=ping_pong schedule=persistent
m=1016 n=720 k=2640 a=f16 b=f16 d=f16; sm90 64x80x64 group_m=4 stages=12 warps=4 cluster=2x4x1 swap_ab=true schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x64x64 group_m=8 stages=12 warps=4 cluster=1x4x2 schedule=data_parallel
m=1112 n=6424 k=3568 a=f16 b=f16 d=f16; sm90 128x224x64 group_m=4 stages=4 warps=8 cluster=2x1x1 swap_ab=true schedule=persistent grid=132
m=1000 n=576 k=888 a=f16 b=f16 d=f16; sm90 128x112x64 group_m=4 stages=6 warps=8 cluster=2x4x1 swap_ab=true schedule=data_parallel
m=1520 n=1312 k=1224 a=f16 b=f16 d=f16; sm90 256x80x64 group_m=8 stages=5 warps=8 cluster=1x4x1 swap_ab=true schedule=data_parallel
m=1080 n=280 k=288 a=f16 b=f16 d=f16; sm90 64x56x64 group_m=4 stages=12 warps=4 cluster=2x4x1 swap_ab=true schedule=data_parallel
m=256 n=2112 k=7168 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x80x64 group_m=4 stages=12 warps=4 cluster=2x4x1 schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x32x64 group_m=2 stages=9 warps=8 cluster=4x1x1 swap_ab=true schedule=data_parallel
m=1384 n=1920 k=1040 a=f16 b=f16 d=f16; sm90 192x120x64 group_m=8 stages=5 warps=12 cluster=1x4x1 swap_ab=true schedule=data_parallel
m=1112 n=6424 k=3568 a=f16 b=f16 d=f16; sm90 128x256x64 group_m=4 stages=4 warps=8 cluster=2x1x1 schedule=persistent grid=132
m=1000 n=576 k=888 a=f16 b=f16 d=f16; sm90 64x48x64 group_m=8 stages=12 warps=4 cluster=1x4x1 swap_ab=true schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 64x128x64 group_m=2 stages=9 warps=4 cluster=4x2x1 schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x96x64 group_m=2 stages=8 warps=8 cluster=4x2x1 swap_ab=true schedule=data_parallel
m=1 n=14336 k=4096 a=bf16 b=bf16 d=bf16 layout_b=column_major; sm90 128x128x64 group_m=4 stages=6 warps=8 cluster=2x1x1 consumers=ping_pong schedule=persistent grid=132
m=1024 n=1024 k=1024 a=f16 b=f16 d=f16; sm90 64x152x64 group_m=2 stages=8 warps=4 cluster=4x1x1 swap_ab=true schedule=data_parallel
)";

}  // namespace jitgemm::cli
