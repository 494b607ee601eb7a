#!/usr/bin/env python3
"""One captured graph of a grouped product, replayed with other sizes each time, and the bits of a token whoever shares its batch.

    tools/python/examples/replayed_groups.py [--groups 8,128,512] [--replays 1000] [--csv FILE]
    tools/python/examples/replayed_groups.py --replays 3      # on the CPU, by the emulator: calls in the place of replays

Sizes are drawn on the device: even, skewed, a few groups alone, one group with all, and rows that no group has. Products of
rows in bfloat16, in e4m3 with scales of blocks and with silu(gate) * up, and along k added up in float32. After each replay
rows drawn by chance are compared with float64's, and which rows are written with which have a group; at the end memory must
be what it was after some replays, and Context.check() content.

Then a token among 1 to 4096 others, in groupings drawn by chance, first, in the middle and last of its group, by a
batch-invariant Context: its bits must be the dense product's. On a GPU, what that costs beside a free choice.
"""
from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable

PLACES = {"first": lambda rows: 0, "middle": lambda rows: rows // 2, "last": lambda rows: rows - 1}
KINDS = ("bf16", "fp8", "gated")
PRICED = {  # experts, of them for a token, hidden, intermediate, tokens
    "deepseek-v3": (256, 8, 7168, 2048, (1, 16, 64, 256)),
    "qwen3-30b": (128, 8, 2048, 768, (1, 16, 64, 256)),
    "8 even groups": (8, 1, 4096, 4096, (8192, 32768)),
}
COLUMNS = ["what", "kind", "groups", "rows", "n", "k", "tried", "wrong", "bytes_grown", "free_us", "invariant_us"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", help="numbers of groups, one after another [8,128,512; 3,40 without a GPU]")
    parser.add_argument("--replays", type=int, default=1000, help="of each graph [1000]")
    parser.add_argument("--no-price", action="store_true", help="do not time the invariant choice")
    parser.add_argument("--tuning-seconds", type=float, default=0.3, help="that a problem may be measured for [0.3]")
    parser.add_argument("--csv", help="write a line for each part to this file")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


ARGUMENTS = parse() if __name__ == "__main__" else None  # --help needs none of what is imported now

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import jitgemm  # noqa: E402
from beside_peers import prepare_gpu, tuned_for  # noqa: E402
from csv_lines import CsvLines  # noqa: E402
from graph_times import graph_of, timed  # noqa: E402
from jitgemm import epilogues  # noqa: E402

Tensor = torch.Tensor
BLOCK = 128  # of scales
SAMPLED = 24  # rows, after each replay
SETTLED = 50  # replays, after which no memory may be taken
MOST_ERROR = 1.5e-2  # of a row's largest element: bfloat16's rounding is 4e-3
COLD = 600e6  # bytes that all sets touch together, several times what a cache holds


def draw_ends(ends: Tensor, rows: int) -> None:
    """On the device, without waiting for it."""
    groups = ends.numel()
    weights = {
        0: lambda: torch.rand(groups, device=ends.device),
        1: lambda: torch.rand(groups, device=ends.device).pow(12),
        2: lambda: (torch.rand(groups, device=ends.device) < 8 / groups).float() + 1e-9,
        3: lambda: F.one_hot(torch.tensor(random.randrange(groups), device=ends.device), groups).float(),
    }[random.randrange(4)]()
    new = (weights.cumsum(0) / weights.sum() * rows).round().clamp(0, rows).int()
    new[-1] = rows
    ends.copy_(new // 2 if random.random() < 0.3 else new)


def wide(scales: Tensor, dimension: int, extent: int) -> Tensor:
    return scales.double().repeat_interleave(BLOCK, dimension).narrow(dimension, 0, extent)


class OfRows:
    """A product of groups of rows, and what it should give."""

    def __init__(self, kind: str, groups: int, rows: int, n: int, k: int, device: str) -> None:
        self.kind, self.groups, self.rows, self.n, self.k = kind, groups, rows, n, k
        self.a = torch.randn(rows, k, device=device).bfloat16()
        self.w = (torch.randn(groups, n, k, device=device) * k**-0.5).bfloat16()
        self.ends = torch.zeros(groups, dtype=torch.int32, device=device)
        self.columns = n // 2 if kind == "gated" else n
        self.d = torch.empty(rows, self.columns, dtype=torch.bfloat16, device=device)
        self.settings: dict = {"epilogue": epilogues.silu_gate("halves")} if kind == "gated" else {}
        if kind == "fp8":
            self.a, self.w = self.a.to(torch.float8_e4m3fn), (self.w * 8).to(torch.float8_e4m3fn)
            self.scales_a = torch.rand(rows, -(-k // BLOCK), device=device) + 0.5
            self.scales_w = torch.rand(groups, -(-n // BLOCK), -(-k // BLOCK), device=device) + 0.5
            self.settings = {"scale_a": jitgemm.block_scales(self.scales_a, self.a), "scale_b": self.scales_w.mT}

    def __call__(self, i: int = 0) -> Tensor:
        return jitgemm.grouped_mm(self.a, self.w.mT, self.ends, out=self.d, **self.settings)

    def expected(self, rows: Tensor, groups: Tensor) -> Tensor:
        a, w = self.a[rows].double(), self.w[groups].double()
        if self.kind == "fp8":
            a = a * wide(self.scales_a[rows], 1, self.k)
            w = w * wide(wide(self.scales_w[groups], 1, self.n), 2, self.k)
        x = torch.bmm(w, a.unsqueeze(2)).squeeze(2)
        return F.silu(x[:, : self.columns]) * x[:, self.columns :] if self.kind == "gated" else x

    def wrong(self) -> Tensor:
        """Of the rows sampled, and of all those that are written without a group or not with one."""
        rows = torch.randint(0, self.rows, (SAMPLED,), device=self.d.device)
        groups = torch.searchsorted(self.ends, rows.int(), right=True)
        x, got = self.expected(rows, groups.clamp(max=self.groups - 1)), self.d[rows].double()
        error = ((got - x).abs() / x.abs().amax(1, keepdim=True).clamp(min=1e-3)).amax(1)
        wrong = (groups < self.groups) & ~(error < MOST_ERROR)
        own = torch.arange(self.rows, device=self.d.device) < self.ends[-1]
        return wrong.sum() + (torch.isnan(self.d).any(1) == own).sum()


class AlongK:
    """A product of groups along k."""

    kind = "along k"

    def __init__(self, groups: int, rows: int, m: int, n: int, device: str) -> None:
        self.groups, self.rows, self.n, self.k = groups, rows, n, m
        self.y, self.x = torch.randn(rows, m, device=device).bfloat16(), torch.randn(rows, n, device=device).bfloat16()
        self.ends = torch.zeros(groups, dtype=torch.int32, device=device)
        self.d = torch.empty(groups, m, n, device=device)

    def __call__(self, i: int = 0) -> Tensor:
        return jitgemm.grouped_mm(self.y.t(), self.x, self.ends, out=self.d)

    def wrong(self) -> Tensor:
        """Elements of one group, and those of any that are not written."""
        group = random.randrange(self.groups)
        begin = self.ends[group - 1] if group else torch.zeros_like(self.ends[0])
        row = torch.arange(self.rows, device=self.d.device)
        own = ((row >= begin) & (row < self.ends[group])).double().unsqueeze(1)
        some = torch.randint(0, self.k, (SAMPLED,), device=self.d.device)
        expected = (self.y[:, some].double() * own).t() @ self.x.double()
        off = (self.d[group][some].double() - expected).abs() > 1e-3 + 4e-5 * self.rows**0.5
        return off.sum() + torch.isnan(self.d).sum()


def replay(product: OfRows | AlongK, count: int, gpu: bool) -> tuple[int, int]:
    """How many are wrong, and by how many bytes less memory is free than it was."""
    draw_ends(product.ends, product.rows)
    product()  # compiles and measures
    run: Callable[[], object] = product
    if gpu:
        product()
        run = graph_of(product, 1, 1).replay
    wrong = torch.zeros((), dtype=torch.int64, device=product.d.device)
    free = 0
    for i in range(count):
        draw_ends(product.ends, product.rows)
        product.d.fill_(float("nan"))
        run()
        wrong += product.wrong()
        if gpu and i == min(SETTLED, count // 2):
            torch.cuda.synchronize()
            free = torch.cuda.mem_get_info()[0]
    if gpu:
        torch.cuda.synchronize()
    return int(wrong), free - torch.cuda.mem_get_info()[0] if gpu else 0


def same_bits(kind: str, groups: int, n: int, k: int, most: list[int], invariant: jitgemm.Context, device: str) -> tuple[int, int]:
    """How many groupings were tried, and how many of them gave a token other bits than the dense product."""
    product = OfRows(kind, groups, max(most), n, k, device)
    group, tried, wrong = groups // 2, 0, 0
    token = torch.randn(1, k, device=device).bfloat16().to(product.a.dtype)
    scales = torch.rand(1, -(-k // BLOCK), device=device) + 0.5
    of_dense = {}
    if kind == "fp8":
        of_dense = {"scale_a": jitgemm.block_scales(scales, token), "scale_b": product.scales_w[group].t()}
    dense = jitgemm.matmul(token, product.w[group].t(), out_dtype="bf16", context=invariant, **of_dense)[0]
    for rows in most:
        for place in PLACES.values():
            for expected_m in (0, max(1, rows // 3)):
                sizes = [0] * groups
                sizes[group] = own = 1 if rows == 1 else random.randrange(1, rows + 1)
                for _ in range(rows - own):
                    sizes[random.choice([g for g in range(groups) if g != group])] += 1
                at = sum(sizes[:group]) + place(own)
                a = product.a[:rows].clone()
                a[at] = token[0]
                of_rows = {}
                if kind == "fp8":
                    its = product.scales_a[:rows].clone()
                    its[at] = scales[0]
                    of_rows = {"scale_a": jitgemm.block_scales(its, a), "scale_b": product.scales_w.mT}
                d = jitgemm.grouped_mm(a, product.w.mT, torch.tensor(sizes, device=device).cumsum(0).int(), out_dtype="bf16",
                                       context=invariant, expected_m=expected_m, **of_rows)
                tried += 1
                wrong += not bool((d[at].view(torch.int16) == dense.view(torch.int16)).all())
    return tried, wrong


def routed(experts: int, top_k: int, tokens: int) -> list[int]:
    if top_k == 1:
        sizes = [int(tokens / experts * random.uniform(0.7, 1.3)) for _ in range(experts - 1)]
        return [*sizes, max(0, tokens - sum(sizes))]
    sizes = [0] * experts
    for _ in range(tokens):
        for expert in random.sample(range(experts), top_k):
            sizes[expert] += 1
    return sizes


def price(experts: int, top_k: int, tokens: int, n: int, k: int, invariant: jitgemm.Context) -> tuple[float, float]:
    """Microseconds of the free choice and of the invariant one."""
    rows = tokens * top_k
    weights = [(torch.randn(experts, n, k, device="cuda", dtype=torch.bfloat16) * k**-0.5)
               for _ in range(max(1, round(COLD / (experts * n * k * 2))))]
    sets = max(2, min(16, int(COLD) // (min(experts, rows) * n * k * 2 + 1)))
    a = [torch.randn(rows, k, device="cuda").bfloat16() for _ in range(sets)]
    d = [torch.empty(rows, n, dtype=torch.bfloat16, device="cuda") for _ in range(sets)]
    ends = []
    for _ in range(sets):
        sizes = torch.tensor(routed(experts, top_k, tokens), device="cuda")
        ends.append(sizes.cumsum(0).clamp(max=rows).int())
    expected = max(1, -(-rows // experts))

    def arm(context: jitgemm.Context | None) -> Callable[[int], Tensor]:
        return lambda i: jitgemm.grouped_mm(a[i], weights[i % len(weights)].mT, ends[i], out=d[i], expected_m=expected, context=context)

    times = timed({"free": arm(None), "invariant": arm(invariant)}, sets, 9)
    return statistics.median(times["free"]), statistics.median(times["invariant"])


def main(arguments: argparse.Namespace) -> int:
    begin = time.perf_counter()
    gpu = torch.cuda.is_available()
    device, name = ("cuda", torch.cuda.get_device_name()) if gpu else ("cpu", "emulator")
    random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    if gpu:
        prepare_gpu(arguments.tuning_seconds)
    invariant = jitgemm.Context(device, batch_invariant=True, **(tuned_for(arguments.tuning_seconds) if gpu else {}))
    lines = CsvLines(arguments.csv, COLUMNS)
    rows, n, k = (2048, 768, 512) if gpu else (96, 64, 144)
    print(f"{name}, torch {torch.__version__}")
    failed = False
    with torch.no_grad():
        for groups in [int(word) for word in (arguments.groups or ("8,128,512" if gpu else "3,40")).split(",")]:
            for product in [OfRows(kind, groups, rows, n, k, device) for kind in KINDS] + [AlongK(groups, rows, n // 2, k, device)]:
                wrong, grown = replay(product, arguments.replays, gpu)
                failed = failed or wrong > 0 or grown > 0
                print(f"{product.kind:8}{groups:5} groups, {rows} rows: {arguments.replays} replays, {wrong} wrong, "
                      f"memory grown by {grown} bytes", flush=True)
                lines.write([["replays", product.kind, groups, rows, product.n, product.k, arguments.replays, wrong, grown, "", ""]])
        jitgemm.default_context(device).check()
        sizes = [(1536, 2048, 128), (4096, 7168, 16), (2880, 2880, 32)] if gpu else [(64, 144, 4)]
        most = [1, 2, 17, 33, 64, 128, 257, 1024, 4096] if gpu else [1, 2, 33]
        for n, k, groups in sizes:
            for kind in ("bf16", "fp8"):
                tried, wrong = same_bits(kind, groups, n, k, most, invariant, device)
                failed = failed or wrong > 0
                print(f"{kind:8}{groups:5} groups, {n} x {k}: {tried} groupings, {wrong} with other bits than the dense product", flush=True)
                lines.write([["bits", kind, groups, max(most), n, k, tried, wrong, "", "", ""]])
        ratios = []
        for model, (experts, top_k, hidden, inner, counts) in PRICED.items() if gpu and not arguments.no_price else ():
            for tokens in counts:
                for n, k in ((2 * inner, hidden), (hidden, inner)):
                    free, its = price(experts, top_k, tokens, n, k, invariant)
                    ratios.append(its / free)
                    print(f"price: {model}, {tokens} tokens, {n} x {k}: {free:.2f} us free, {its:.2f} invariant, {its / free:.3f}", flush=True)
                    lines.write([["price", model, experts, tokens * top_k, n, k, "", "", "", f"{free:.2f}", f"{its:.2f}"]])
                    torch.cuda.empty_cache()
        if ratios:
            print(f"price: {statistics.geometric_mean(ratios):.3f} of {len(ratios)}, at most {max(ratios):.3f}")
    print(f"{time.perf_counter() - begin:.0f} s{', FAILED' if failed else ''}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
