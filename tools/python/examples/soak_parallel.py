#!/usr/bin/env python3
"""Many calls across GPUs with ranks that are late at random, replays of a captured graph, and what a rank says whose peer is
killed: all three of jitgemm.TensorParallel's products, of small integers, whose sums are exact.

    torchrun --nproc-per-node 2 tools/python/examples/soak_parallel.py [--calls 100000]
    python3 tools/python/examples/soak_parallel.py --kill

Each call's D is compared with the whole product's, bit for bit, on the device.
"""
from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100_000, help="[100000]")
    parser.add_argument("--replays", type=int, default=1000, help="of a graph of the three products [1000]")
    parser.add_argument("--kill", action="store_true", help="instead: two ranks, of which one is killed between two calls")
    parser.add_argument("--rank-to-kill", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    return parser.parse_args()


ARGUMENTS = parse() if __name__ == "__main__" else None  # --help needs none of what is imported now

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import jitgemm  # noqa: E402
import ranks as processes  # noqa: E402

Tensor = torch.Tensor
METHODS = ("all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce")


class Product:
    """Operands of a rank and what comes of them; all ranks know the whole."""

    def __init__(self, method: str, m: int, n: int, k: int, rank: int, ranks: int) -> None:
        generator = torch.Generator("cuda").manual_seed(m + n + k)
        a, b = (torch.randint(-2, 3, shape, generator=generator, device="cuda").bfloat16() for shape in ((m, k), (n, k)))
        whole = (a.double() @ b.double().t()).bfloat16()
        rows, columns, depth = (slice(rank * size // ranks, (rank + 1) * size // ranks) for size in (m, n, k))
        self.method = method
        if method == "all_gather_matmul":
            self.a, self.b, self.d = a[rows].contiguous(), b[columns].contiguous().t(), whole[:, columns].contiguous()
        else:
            self.a, self.b = a[:, depth].contiguous(), b[:, depth].contiguous().t()
            self.d = whole[rows] if method == "matmul_reduce_scatter" else whole
        self.out = torch.empty_like(self.d)

    def enqueue(self, parallel: jitgemm.TensorParallel) -> None:
        getattr(parallel, self.method)(self.a, self.b, out=self.out)


def products(rank: int, ranks: int) -> list[Product]:
    """With shards that are long enough to be overlapped, and others; sums below 2^8 are exact in bf16."""
    sizes = [(256 * ranks * 4, 256 * ranks, 16), (64 * ranks, 128 * ranks, 16), (8 * ranks, 512, 16)]
    return [Product(method, m, n, k, rank, ranks) for method in METHODS for m, n, k in sizes]


def soak(arguments: argparse.Namespace, rank: int, ranks: int) -> bool:
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    rng, late = random.Random(1), random.Random(100 + rank)  # the first one the same on all ranks
    with torch.no_grad(), jitgemm.TensorParallel(dist.group.WORLD, timeout_seconds=30) as parallel:
        everything = products(rank, ranks)
        for product in everything:
            parallel.prepare(product.method, product.a, product.b)
            if rank == 0:
                plan = parallel.plan(product.method, product.a, product.b)
                print(f"{product.method:22}{tuple(product.d.shape)}: "
                      f"{'overlapped' if plan.overlapped else 'one shot' if plan.one_shot else 'NCCL'}", flush=True)
        begin = time.monotonic()
        for call in range(arguments.calls):
            product = everything[rng.randrange(len(everything))]
            product.out.fill_(float("nan"))
            if late.random() < 0.02:
                torch.cuda._sleep(late.randrange(1, 200_000))
            product.enqueue(parallel)
            wrong += (product.out != product.d).any()
            if call % 1000 == 999:
                torch.cuda.synchronize()  # no rank runs far ahead of its own device
        torch.cuda.synchronize()
        parallel.check()
        seconds, bad = time.monotonic() - begin, int(wrong)
        print(f"rank {rank}: {arguments.calls} calls in {seconds:.0f} s, {bad} wrong", flush=True)

        graph = torch.cuda.CUDAGraph()
        dist.barrier()
        torch.cuda.synchronize()
        memory = torch.cuda.mem_get_info()[0]
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for product in everything:
                product.out.fill_(float("nan"))
                product.enqueue(parallel)
                wrong += (product.out != product.d).any()
        for _ in range(arguments.replays):
            graph.replay()
        torch.cuda.synchronize()
        parallel.check()
        more = memory - torch.cuda.mem_get_info()[0]
        print(f"rank {rank}: {arguments.replays} replays of {len(everything)} products, {int(wrong) - bad} wrong, "
              f"{more >> 20} MiB more memory", flush=True)
        del graph
    return int(wrong) == 0


def one_of_two(arguments: argparse.Namespace) -> int:
    """A rank by itself, of two that no launcher watches."""
    rank = arguments.rank_to_kill
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", store=dist.FileStore(arguments.store, 2), rank=rank, world_size=2,
                            device_id=torch.device("cuda", rank))
    parallel = jitgemm.TensorParallel(dist.group.WORLD, timeout_seconds=5)
    all_products = products(rank, 2)
    for product in all_products:
        product.enqueue(parallel)
    torch.cuda.synchronize()
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        while True:
            for product in all_products[:1] + all_products[-1:]:
                product.enqueue(parallel)
            time.sleep(0.1)
    except RuntimeError as error:
        print(f"rank 0 after {time.monotonic() - begin:.1f} s: {getattr(error, 'code', '')}: {error}", flush=True)
        told = "peer_lost" in str(getattr(error, "code", ""))
    os._exit(0 if told else 1)  # NCCL would wait for rank 1


def kill() -> int:
    if torch.cuda.device_count() < 2:
        print("soak_parallel.py: --kill takes 2 GPUs", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--kill", "--store", os.path.join(folder, "store"), "--rank-to-kill"]
        ranks = [subprocess.Popen([*command, str(rank)]) for rank in range(2)]
        try:
            status = ranks[0].wait(timeout=120)
        finally:
            for rank in ranks:
                rank.kill()
    return status


def main(arguments: argparse.Namespace) -> int:
    if arguments.rank_to_kill is not None:
        return one_of_two(arguments)
    if arguments.kill:
        return kill()
    return processes.main("soak_parallel.py", partial(soak, arguments))


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
