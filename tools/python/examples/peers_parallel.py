#!/usr/bin/env python3
"""Products across GPUs beside PyTorch's fused ones over symmetric memory: jitgemm.TensorParallel's all_gather_matmul() and
matmul_reduce_scatter(), symm_mem.fused_all_gather_matmul and fused_matmul_reduce_scatter, torch's product with NCCL, and
cuBLASMp 0.7 where --cublasmp tells its library.

    torchrun --nproc-per-node 2 tools/python/examples/peers_parallel.py [--tokens 2048] [--csv FILE] [--graphs]

bf16, layers of Llama-70B and -405B. Arms take turns in random order after a barrier, behind a kernel that empties the L2 and
one that waits until the host has enqueued the arm; the slowest rank's time counts, medians. Each arm's result is compared with
float32's; one of ours that is off by more than a fifth over torch's is an error.
"""
from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import sys
from collections.abc import Callable
from functools import partial

LAYERS = {"llama-70b": (8192, 28672, 10240), "llama-405b": (16384, 53248, 18432), "tiny": (64, 128, 96)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="llama-70b,llama-405b", help="of " + ", ".join(LAYERS) + " [the first two]")
    parser.add_argument("--tokens", default="512,2048,8192", help="of all ranks, one case after another [512,2048,8192]")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each arm [15]")
    parser.add_argument("--cublasmp", metavar="LIBRARY", help="libcublasmp.so.0 of nvidia-cublasmp-cu13 0.7: one more peer, "
                        "not with --graphs, since it hangs in a capture")
    parser.add_argument("--graphs", action="store_true", help="time each arm as a CUDA graph, where it can be captured")
    parser.add_argument("--csv", help="write a line an arm to this file")
    arguments = parser.parse_args()
    if arguments.cublasmp and arguments.graphs:
        parser.error("cuBLASMp 0.7 cannot be captured; leave out --graphs or --cublasmp")
    for name in arguments.models.split(","):
        if name not in LAYERS:
            parser.error(f"no model {name!r}; choose from {', '.join(LAYERS)}")
    return arguments


ARGUMENTS = parse() if __name__ == "__main__" else None  # --help needs none of what is imported now

os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")  # as the other arms do without NVLink multicast

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed._symmetric_memory  # noqa: E402, F401  (has the operators)

import jitgemm  # noqa: E402
from csv_lines import CsvLines  # noqa: E402
from cublasmp import ALGORITHMS, CublasMp, Product  # noqa: E402
from ranks import main, slowest, timed  # noqa: E402

Tensor = torch.Tensor
Arm = Callable[[], Tensor]
GATHER, SCATTER = "all_gather_matmul", "matmul_reduce_scatter"


def cases(models: str, tokens: str) -> list[tuple[str, int, int, int]]:
    """(method, tokens, n, k) of whole layers."""
    found = []
    for name in models.split(","):
        hidden, inner, qkv = LAYERS[name]
        for count in map(int, tokens.split(",")):
            found += [(GATHER, count, qkv, hidden), (GATHER, count, 2 * inner, hidden),
                      (SCATTER, count, hidden, hidden), (SCATTER, count, hidden, inner)]
    return found


def arms_of(method: str, a: Tensor, b: Tensor, parallel: jitgemm.TensorParallel, ranks: int) -> dict[str, Arm]:
    """`a`: this rank's; `b`: [k, n] of this rank, its columns contiguous."""
    ops, group = getattr(torch.ops, "symm_mem", None), dist.group.WORLD.group_name
    if method == GATHER:
        whole = a.new_empty(ranks * a.shape[0], a.shape[1])

        def over_nccl() -> Tensor:
            dist.all_gather_into_tensor(whole, a)
            return whole @ b

        return {"jitgemm": lambda: parallel.all_gather_matmul(a, b), "torch + NCCL": over_nccl,
                "symm_mem": lambda: ops.fused_all_gather_matmul(a, [b], 0, group)[1][0]}
    part = a.new_empty(a.shape[0] // ranks, b.shape[1])

    def over_nccl_too() -> Tensor:
        dist.reduce_scatter_tensor(part, a @ b)
        return part

    return {"jitgemm": lambda: parallel.matmul_reduce_scatter(a, b), "torch + NCCL": over_nccl_too,
            "symm_mem": lambda: ops.fused_matmul_reduce_scatter(a, b, "sum", 0, group)}


def error_of(method: str, a: Tensor, b: Tensor, d: Tensor, rank: int, ranks: int) -> float:
    """Relative, of some of the rank's rows."""
    if method == GATHER:
        whole = a.new_empty(ranks * a.shape[0], a.shape[1])
        dist.all_gather_into_tensor(whole, a)
        rows = torch.linspace(0, whole.shape[0] - 1, 64, device="cuda").long()
        exact = whole[rows].float() @ b.float()
    else:
        own = a.shape[0] // ranks
        rows = torch.linspace(0, own - 1, 64, device="cuda").long()
        exact = torch.zeros(64, b.shape[1], device="cuda")
        for owner in range(ranks):
            sums = a[owner * own + rows].float() @ b.float()
            dist.reduce(sums, owner)
            if owner == rank:
                exact = sums
    return slowest(float((d[rows].float() - exact).norm() / exact.norm()))


def captured(call: Arm) -> Arm:
    """Of a call that has been made before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        d = call()

    def replay() -> Tensor:
        graph.replay()
        return d

    return replay


class Bench:
    """One case after another; each line is printed and written when it is known."""

    def __init__(self, arguments: argparse.Namespace, rank: int, ranks: int) -> None:
        self.arguments, self.rank, self.ranks = arguments, rank, ranks
        self.wait = partial(torch.cuda._sleep, 6_000_000)  # about 3 ms, in which the host enqueues
        self.flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        self.ratios: dict[str, list[float]] = {}
        self.right = True
        self.mp = CublasMp(arguments.cublasmp) if arguments.cublasmp else None
        self.lines = CsvLines(arguments.csv if rank == 0 else None,
                              ("method", "tokens", "n", "k", "ranks", "arm", "graph", "us", "error"))

    def say(self, text: str) -> None:
        if self.rank == 0:
            print(text, flush=True)

    def working(self, arms: dict[str, Arm], error: Callable[[Arm], float]) -> tuple[dict[str, Arm], dict[str, float]]:
        """Those that run here, as graphs if they are asked for and can be, and their errors. What does not run on one rank
        does not on any."""
        works, errors = {}, {}
        for name, call in arms.items():
            try:
                errors[name] = error(call)
                works[name] = captured(call) if self.arguments.graphs else call
            except (RuntimeError, AttributeError) as reason:
                if name == "jitgemm":
                    raise
                self.say(f"{name} does not {'run' if name not in errors else 'become a graph'}: {str(reason).splitlines()[0]}")
        return works, errors

    def of_cublasmp(self, a: Tensor, b: Tensor, gathers: bool) -> dict[str, Product]:
        products = {}
        for name in ALGORITHMS if self.mp else ():
            try:
                products[f"cuBLASMp {name}"] = Product(self.mp, a, b, gathers, name)
            except RuntimeError as reason:
                self.say(f"cuBLASMp {name} does not run: {reason}")
        return products

    def case(self, parallel: jitgemm.TensorParallel, method: str, tokens: int, n: int, k: int) -> None:
        gathers, ranks = method == GATHER, self.ranks
        rows, columns, depth = (tokens // ranks, n // ranks, k) if gathers else (tokens, n, k // ranks)
        torch.manual_seed(7 + self.rank)
        a = torch.randn(rows, depth, device="cuda").bfloat16()
        b = (torch.randn(columns, depth, device="cuda") * k**-0.5).bfloat16().t()
        arms = arms_of(method, a, b, parallel, ranks)
        products = self.of_cublasmp(a, b, gathers)
        arms |= products
        works, errors = self.working(arms, lambda call: error_of(method, a, b, call(), self.rank, ranks))
        us = timed(works, self.arguments.rounds, before=self.flush.zero_, behind=self.wait)
        parallel.check()
        self.right = self.right and errors["jitgemm"] <= 1.2 * errors["torch + NCCL"]
        for name in us:
            self.ratios.setdefault(name, []).append(us[name] / us["jitgemm"])
        self.say(f"{method:22}{tokens:6}{n:7}{k:6}  " + "  ".join(
            f"{name} {us[name]:.1f} us, error {errors[name]:.4f}" for name in us))
        self.lines.write((method, tokens, n, k, ranks, name, "yes" if self.arguments.graphs else "no",
                          f"{us[name]:.2f}", f"{errors[name]:.5f}") for name in us)
        for product in products.values():
            product.close()

    def close(self) -> None:
        for name, values in self.ratios.items():
            mean = math.exp(statistics.fmean(map(math.log, values)))
            if name != "jitgemm":
                self.say(f"{name} takes {mean:.3f} times as long, at least {min(values):.3f}; {len(values)} products")
        if self.mp:
            self.mp.close()


def run(arguments: argparse.Namespace, rank: int, ranks: int) -> bool:
    """Whether all our results are right."""
    random.seed(1)
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()), jitgemm.TensorParallel(dist.group.WORLD) as parallel:
        bench = Bench(arguments, rank, ranks)
        for case in cases(arguments.models, arguments.tokens):
            bench.case(parallel, *case)
        bench.close()
    return bench.right


if __name__ == "__main__":
    sys.exit(main("peers_parallel.py", partial(run, ARGUMENTS)))
