#include "warm/list.hpp"

namespace jitgemm::cli {

// `jitgemm wisdom cover --kernels 48` of tests/corpora/streamk_aligned8_300.txt, tuned on an H200
// (tools/results/NOTES.md, 33). The first k are the set of k.
const char* const few_kernels_sm90 =
    R"(m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm80 64x64x64 group_m=8 stages=3 warps=4 schedule=data_parallel
m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm90 128x64x64 group_m=8 stages=8 warps=8 schedule=persistent grid=132
m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm90 128x128x64 group_m=8 stages=6 warps=8 cluster=1x2x1 schedule=persistent grid=132
m=384 n=352 k=3752 a=f16 b=f16 d=f16; sm90 64x32x64 group_m=8 stages=10 warps=4 cluster=1x2x1 swap_ab=true schedule=data_parallel
m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm90 192x128x64 group_m=8 stages=4 warps=12 cluster=1x2x1 schedule=data_parallel
m=1016 n=720 k=2640 a=f16 b=f16 d=f16; sm90 64x64x64 group_m=8 stages=10 warps=4 cluster=1x4x1 schedule=persistent grid=120
m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm90 128x64x64 group_m=8 stages=8 warps=8 cluster=1x2x1 schedule=persistent grid=132
m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm90 128x128x64 group_m=4 stages=6 warps=8 cluster=2x2x1 consumers=ping_pong schedule=persistent grid=120
m=128 n=232 k=2384 a=f16 b=f16 d=f16; sm90 64x32x64 group_m=8 stages=10 warps=4 cluster=1x2x4 swap_ab=true schedule=data_parallel
m=4144 n=224 k=640 a=f16 b=f16 d=f16; sm90 64x96x64 group_m=2 stages=10 warps=4 cluster=4x1x1 swap_ab=true schedule=persistent grid=120
m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm90 128x96x64 group_m=2 stages=6 warps=8 cluster=4x2x1 swap_ab=true schedule=persistent grid=120
m=1016 n=720 k=2640 a=f16 b=f16 d=f16; sm90 64x64x64 group_m=2 stages=10 warps=4 cluster=4x1x1 schedule=persistent grid=120
m=384 n=352 k=3752 a=f16 b=f16 d=f16; sm90 64x64x64 group_m=4 stages=10 warps=4 cluster=2x1x2 schedule=data_parallel
m=296 n=2920 k=896 a=f16 b=f16 d=f16; sm90 192x80x64 group_m=8 stages=5 warps=12 cluster=1x4x2 swap_ab=true schedule=data_parallel
m=2440 n=4808 k=232 a=f16 b=f16 d=f16; sm90 128x160x64 group_m=8 stages=5 warps=8 cluster=1x2x1 swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm90 128x128x64 group_m=4 stages=6 warps=8 cluster=2x1x1 schedule=persistent grid=132
m=7024 n=456 k=2392 a=f16 b=f16 d=f16; sm90 128x224x64 group_m=4 stages=4 warps=8 cluster=2x1x1 swap_ab=true schedule=data_parallel
m=1016 n=720 k=2640 a=f16 b=f16 d=f16; sm90 64x40x64 group_m=8 stages=10 warps=4 cluster=1x4x1 swap_ab=true schedule=persistent grid=120
m=5120 n=704 k=2520 a=f16 b=f16 d=f16; sm90 128x96x64 group_m=4 stages=6 warps=8 cluster=2x4x1 swap_ab=true schedule=persistent grid=120
m=384 n=352 k=3752 a=f16 b=f16 d=f16; sm90 64x48x64 group_m=8 stages=10 warps=4 cluster=1x4x2 swap_ab=true schedule=data_parallel
m=296 n=2920 k=896 a=f16 b=f16 d=f16; sm90 64x80x64 group_m=4 stages=10 warps=4 cluster=2x2x1 swap_ab=true schedule=persistent grid=120
m=7024 n=456 k=2392 a=f16 b=f16 d=f16; sm90 128x80x64 group_m=4 stages=7 warps=8 cluster=2x2x1 swap_ab=true schedule=persistent grid=120
m=5120 n=704 k=2520 a=f16 b=f16 d=f16; sm90 192x88x64 group_m=8 stages=5 warps=12 cluster=1x4x1 swap_ab=true schedule=persistent grid=120
m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm90 192x120x64 group_m=8 stages=4 warps=12 cluster=1x2x1 swap_ab=true schedule=data_parallel
m=1104 n=2680 k=8176 a=f16 b=f16 d=f16; sm90 192x144x64 group_m=8 stages=4 warps=12 cluster=1x2x1 swap_ab=true schedule=data_parallel
m=1520 n=1312 k=1224 a=f16 b=f16 d=f16; sm90 64x96x64 group_m=4 stages=10 warps=4 cluster=2x4x1 swap_ab=true schedule=persistent grid=120
m=384 n=352 k=3752 a=f16 b=f16 d=f16; sm90 64x32x64 group_m=8 stages=10 warps=4 cluster=1x2x2 swap_ab=true schedule=data_parallel
m=2688 n=1784 k=4112 a=f16 b=f16 d=f16; sm90 128x112x64 group_m=4 stages=6 warps=8 cluster=2x4x1 swap_ab=true schedule=persistent grid=120
m=2440 n=4808 k=232 a=f16 b=f16 d=f16; sm90 192x176x64 group_m=4 stages=3 warps=12 cluster=2x1x1 swap_ab=true schedule=persistent grid=132
m=1016 n=720 k=2640 a=f16 b=f16 d=f16; sm90 64x48x64 group_m=4 stages=10 warps=4 cluster=2x2x1 swap_ab=true schedule=persistent grid=120
m=5120 n=704 k=2520 a=f16 b=f16 d=f16; sm90 256x120x64 group_m=8 stages=4 warps=8 cluster=1x2x1 swap_ab=true schedule=data_parallel
m=1128 n=784 k=7288 a=f16 b=f16 d=f16; sm90 128x96x64 group_m=4 stages=6 warps=8 cluster=2x2x2 swap_ab=true schedule=data_parallel
m=816 n=3392 k=4032 a=f16 b=f16 d=f16; sm90 128x104x64 group_m=8 stages=6 warps=8 cluster=1x2x1 swap_ab=true schedule=persistent grid=132
m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm90 128x128x64 group_m=8 stages=6 warps=8 cluster=1x2x1 consumers=ping_pong schedule=persistent grid=132
m=736 n=200 k=4408 a=f16 b=f16 d=f16; sm90 64x64x64 group_m=8 stages=10 warps=4 cluster=1x4x2 swap_ab=true schedule=data_parallel
m=1016 n=720 k=2640 a=f16 b=f16 d=f16; sm90 64x64x64 group_m=4 stages=10 warps=4 cluster=2x4x1 schedule=persistent grid=120
m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm90 128x64x64 group_m=4 stages=8 warps=8 cluster=2x2x1 schedule=persistent grid=120
m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm90 64x128x64 group_m=4 stages=8 warps=8 cluster=2x1x1 consumers=ping_pong schedule=persistent grid=132
m=1448 n=2680 k=248 a=f16 b=f16 d=f16; sm90 128x96x64 group_m=8 stages=6 warps=8 cluster=1x4x1 swap_ab=true schedule=persistent grid=120
m=2440 n=4808 k=232 a=f16 b=f16 d=f16; sm90 128x160x64 group_m=4 stages=5 warps=8 cluster=2x2x1 swap_ab=true schedule=persistent grid=120
m=520 n=6384 k=8160 a=f16 b=f16 d=f16; sm90 192x88x64 group_m=8 stages=5 warps=12 cluster=1x2x1 swap_ab=true schedule=persistent grid=132
m=904 n=2640 k=448 a=f16 b=f16 d=f16; sm90 128x160x64 group_m=4 stages=5 warps=8 cluster=2x1x1 swap_ab=true schedule=data_parallel
m=296 n=2920 k=896 a=f16 b=f16 d=f16; sm90 64x160x64 group_m=2 stages=7 warps=4 cluster=4x1x2 swap_ab=true schedule=data_parallel
m=1104 n=2680 k=8176 a=f16 b=f16 d=f16; sm90 128x72x64 group_m=8 stages=7 warps=8 cluster=1x4x1 swap_ab=true schedule=persistent grid=120
m=296 n=2920 k=896 a=f16 b=f16 d=f16; sm90 192x80x64 group_m=8 stages=5 warps=12 cluster=1x4x1 swap_ab=true schedule=data_parallel
m=1016 n=720 k=2640 a=f16 b=f16 d=f16; sm90 64x56x64 group_m=8 stages=10 warps=4 cluster=1x4x1 swap_ab=true schedule=persistent grid=120
m=2440 n=4808 k=232 a=f16 b=f16 d=f16; sm90 128x128x64 group_m=8 stages=6 warps=8 cluster=1x2x1 swap_ab=true consumers=ping_pong schedule=persistent grid=132
m=1016 n=720 k=2640 a=f16 b=f16 d=f16; sm90 128x64x64 group_m=4 stages=8 warps=8 cluster=2x2x2 swap_ab=true schedule=data_parallel
)";

}  // namespace jitgemm::cli
