#!/usr/bin/env python3
"""Times of an MLP that is split over GPUs as Megatron splits it, by default of Llama-70B's size: its first weight by columns,
its second by rows, tokens between layers by ranks. By jitgemm.TensorParallel beside torch.matmul and torch.distributed.

    torchrun --nproc-per-node 2 tools/python/examples/tensor_parallel.py [--tokens 512,2048,8192]

Each rank is a process with a GPU of its own. Ours is all_gather_matmul() with gelu, then matmul_reduce_scatter(), without
overlap also; torch's is all_gather_into_tensor(), two products, and reduce_scatter_tensor(). Arms take turns in random order
after a barrier; the slowest rank's time counts, medians. Results are compared with float32's, and ours is wrong where it is
further off than torch's by a fifth.
"""
from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from functools import partial

SIZES = {"llama-70b": (8192, 28672), "llama-8b": (4096, 14336), "tiny": (64, 128)}  # hidden, intermediate


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=SIZES, default="llama-70b", help="sizes of the layer [llama-70b]")
    parser.add_argument("--tokens", default="512,2048,8192", help="of all ranks, one case after another [512,2048,8192]")
    parser.add_argument("--rounds", type=int, default=31, help="samples of each arm [31]")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


ARGUMENTS = parse() if __name__ == "__main__" else None  # --help needs none of what is imported now

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import jitgemm  # noqa: E402
from ranks import main, slowest, timed  # noqa: E402

Tensor = torch.Tensor
Layer = Callable[[Tensor], Tensor]  # of a rank's tokens


class Weights:
    """A rank's parts of both, and of the second one's bias all; those of all ranks are drawn alike."""

    def __init__(self, hidden: int, inner: int, rank: int, ranks: int, device: str) -> None:
        generator = torch.Generator(device).manual_seed(1)

        def drawn(rows: int, columns: int) -> Tensor:
            return (torch.randn(rows, columns, generator=generator, device=device) * columns**-0.5).bfloat16()

        self.whole_up, self.whole_down = drawn(inner, hidden), drawn(hidden, inner)
        self.bias = drawn(1, hidden)[0]
        own = slice(rank * inner // ranks, (rank + 1) * inner // ranks)
        self.up, self.down = self.whole_up[own], self.whole_down[:, own].contiguous()

    def exact(self, x: Tensor) -> Tensor:
        return F.gelu(x.float() @ self.whole_up.float().t()) @ self.whole_down.float().t() + self.bias.float()


def ours(parallel: jitgemm.TensorParallel, w: Weights) -> Layer:
    def layer(x: Tensor) -> Tensor:
        hidden = parallel.all_gather_matmul(x, w.up.t(), activation="gelu")
        return parallel.matmul_reduce_scatter(hidden, w.down.t(), bias=w.bias)

    return layer


def torchs(ranks: int, w: Weights) -> Layer:
    def layer(x: Tensor) -> Tensor:
        everyone, y = x.new_empty(ranks * x.shape[0], x.shape[1]), torch.empty_like(x)
        dist.all_gather_into_tensor(everyone, x)
        dist.reduce_scatter_tensor(y, F.gelu(everyone @ w.up.t()) @ w.down.t())
        return y + w.bias

    return layer


def run(arguments: argparse.Namespace, rank: int, ranks: int) -> bool:
    """Whether our results are right on all ranks."""
    hidden, inner = SIZES[arguments.config]
    if any(int(word) % ranks for word in arguments.tokens.split(",")) or inner % ranks:
        print(f"tensor_parallel.py: {ranks} ranks do not divide the tokens, or the layer; choose others", file=sys.stderr)
        return False
    random.seed(arguments.seed)
    w = Weights(hidden, inner, rank, ranks, "cuda")
    right = True
    with (torch.no_grad(), jitgemm.TensorParallel(dist.group.WORLD) as parallel,
          jitgemm.TensorParallel(dist.group.WORLD, overlap="none") as apart):
        arms = {"jitgemm": ours(parallel, w), "jitgemm, no overlap": ours(apart, w), "torch": torchs(ranks, w)}
        for tokens in [int(word) for word in arguments.tokens.split(",")]:
            torch.manual_seed(arguments.seed + rank)
            x = torch.randn(tokens // ranks, hidden, device="cuda").bfloat16()
            exact = w.exact(x)
            errors = {name: slowest(float((layer(x).float() - exact).norm() / exact.norm())) for name, layer in arms.items()}
            us = timed({name: partial(layer, x) for name, layer in arms.items()}, arguments.rounds)
            parallel.check()
            right = right and max(errors.values()) <= 1.2 * errors["torch"]
            for name in arms if rank == 0 else ():
                print(f"{tokens:6} tokens  {name:20}{us[name]:9.1f} us  {us['torch'] / us[name]:6.3f} of torch's speed  "
                      f"error {errors[name]:.4f}{'' if errors[name] <= 1.2 * errors['torch'] else ' WRONG'}", flush=True)
            if rank == 0:
                print(parallel.plan("all_gather_matmul", x, w.up.t(), activation="gelu"))
    return right


if __name__ == "__main__":
    sys.exit(main("tensor_parallel.py", partial(run, ARGUMENTS)))
