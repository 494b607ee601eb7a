"""A fused-MoE kernel in Triton, for peers_groups.py. Where there is no Triton, `triton` is None."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from graph_times import graph_of, replayed

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

Tensor = torch.Tensor
Arm = Callable[[int], Tensor]  # of a set of inputs

if triton:
    @triton.jit(do_not_specialize=["scale_ld", "blocks_n", "blocks_k"])
    def moe_kernel(a, b, d, scale_a, scale_b, groups, firsts, ends, n, k, scale_ld, blocks_n, blocks_k, SCALED: tl.constexpr,
                   GATED: tl.constexpr, EVEN_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        width = n // 2 if GATED else n
        columns = tl.cdiv(width, BN)
        block = tl.program_id(0) // columns
        g, end = tl.load(groups + block).to(tl.int64), tl.load(ends + block)
        rm = tl.load(firsts + block) + tl.arange(0, BM)
        rn = (tl.program_id(0) % columns) * BN + tl.arange(0, BN)
        rk = tl.arange(0, BK)
        live, there = (rm < end)[:, None], (rn < width)[None, :]
        pa = a + rm[:, None].to(tl.int64) * k + rk[None, :]
        pb = b + g * n * k + rn[None, :].to(tl.int64) * k + rk[:, None]
        acc = tl.zeros((BM, BN), tl.float32)
        up = tl.zeros((BM, BN), tl.float32)
        for at in range(0, k, BK):
            inside = rk < k - at
            x = tl.load(pa + at, mask=live if EVEN_K else live & inside[None, :], other=0.0)
            y = tl.load(pb + at, mask=there if EVEN_K else there & inside[:, None], other=0.0)
            if SCALED:
                of_a = tl.load(scale_a + rm + (at // 128) * scale_ld, mask=rm < end, other=0.0)
                of_b = tl.load(scale_b + (g * blocks_n + rn // 128) * blocks_k + at // 128, mask=rn < width, other=0.0)
                acc += tl.dot(x, y) * of_a[:, None] * of_b[None, :]
            else:
                acc = tl.dot(x, y, acc)
            if GATED:
                z = tl.load(pb + width.to(tl.int64) * k + at, mask=there if EVEN_K else there & inside[:, None], other=0.0)
                if SCALED:
                    of_up = tl.load(scale_b + (g * blocks_n + (width + rn) // 128) * blocks_k + at // 128, mask=rn < width, other=0.0)
                    up += tl.dot(x, z) * of_a[:, None] * of_up[None, :]
                else:
                    up = tl.dot(x, z, up)
        if GATED:
            acc = acc * tl.sigmoid(acc) * up
        tl.store(d + rm[:, None].to(tl.int64) * width + rn[None, :], acc.to(tl.bfloat16), mask=live & there)

    @triton.jit
    def gate_kernel(h, d, width, total, BLOCK_SIZE: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        row, column = at // width, at % width
        x = tl.load(h + row * 2 * width + column, mask=at < total, other=0.0).to(tl.float32)
        up = tl.load(h + row * 2 * width + width + column, mask=at < total, other=0.0).to(tl.float32)
        tl.store(d + at, (x * tl.sigmoid(x) * up).to(tl.bfloat16), mask=at < total)


TILES = {  # rows, columns, k, warps, stages
    "bf16": [(16, 64, 128, 4, 4), (16, 32, 256, 4, 4), (64, 128, 64, 4, 4), (128, 128, 64, 8, 4)],
    "fp8": [(16, 64, 128, 4, 5), (16, 128, 128, 4, 4), (64, 128, 128, 4, 4), (128, 128, 128, 8, 3)],
}


def by_triton(case: Any) -> dict[str, Arm]:
    """A kernel for each tile, of them the fastest; and of a gated product in one kernel or two."""
    scaled, (n, k) = case.weights.scaled, (case.weights.n, case.weights.k)
    h = [torch.empty(a.shape[0], n, dtype=torch.bfloat16, device=a.device) for a in case.a] if case.gated else []
    made: dict[tuple, Arm] = {}
    rows_of_a_group = case.a[0].shape[0] / case.weights.experts

    def lists_of(bm: int) -> list[Tensor]:
        lists = []
        for routing in case.routings:
            blocks, first = [], 0
            for expert, x in enumerate(routing):
                blocks += [(expert, first + j, first + x) for j in range(0, x, bm)]
                first += x
            lists.append(torch.tensor(blocks, dtype=torch.int32, device=case.a[0].device).t().contiguous())
        return lists

    for bm, bn, bk, warps, stages in TILES["fp8" if scaled else "bf16"]:
        if bm > 16 and rows_of_a_group < 8:
            continue
        lists = lists_of(bm)
        for fused in {case.gated, False}:
            columns = -(-(n // 2 if fused else n) // bn)

            def run(i: int, columns=columns, lists=lists, fused=fused, tile=(bm, bn, bk), warps=warps, stages=stages) -> Tensor:
                blocks, weights = lists[i], case.weights
                scale_a = case.scales[i] if scaled else case.a[i]
                scale_b = weights.scales[i % len(weights.scales)] if scaled else case.a[i]
                d = case.d[i] if fused == case.gated else h[i]
                moe_kernel[(blocks.shape[1] * columns,)](
                    case.a[i], case.w(i), d, scale_a, scale_b, blocks[0], blocks[1], blocks[2], n, k,
                    scale_a.stride(1) if scaled else 0, *weights.blocks, SCALED=scaled, GATED=fused,
                    EVEN_K=k % tile[2] == 0, BM=tile[0], BN=tile[1], BK=tile[2], num_warps=warps, num_stages=stages)
                if fused != case.gated:
                    total = case.d[i].numel()
                    gate_kernel[(-(-total // 1024),)](d, case.d[i], n // 2, total, BLOCK_SIZE=1024)
                return case.d[i]

            try:
                run(0)
                torch.cuda.synchronize()
                made[bm, bn, bk, fused] = run
            except Exception as error:  # such a tile needs more shared memory than there is, say
                print(f"    triton {bm}x{bn}x{bk}: {str(error).strip().splitlines()[0][:100]}", flush=True)
    times = {key: min(replayed(graph_of(run, case.sets, case.sets)) for _ in range(2)) for key, run in made.items()}
    return {"triton": made[min(times, key=times.__getitem__)]}
