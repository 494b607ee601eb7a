#!/usr/bin/env python3
"""What a call costs the host, on a GPU: torch's matrix product and ours in turns of random order, medians.

    tools/python/examples/overhead.py [--size 512] [--rounds 60]

Each sample is the time to queue 200 products of one kind on an idle GPU, which is fast enough to keep up.
"""
from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable

CALLS = 200


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512, help="rows and columns of all matrices [512]")
    parser.add_argument("--rounds", type=int, default=60, help="samples of each [60]")
    return parser.parse_args()


ARGUMENTS = parse() if __name__ == "__main__" else None  # --help needs none of what is imported now

import torch  # noqa: E402

import jitgemm  # noqa: E402
import jitgemm.torch  # noqa: E402


def arms_of(size: int, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    a, b = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
    d = torch.empty(size, size, device="cuda", dtype=dtype)
    product = jitgemm.Matmul(a, b)
    layer, theirs = jitgemm.torch.Linear(size, size, device="cuda", dtype=dtype), torch.nn.Linear(size, size).cuda().to(dtype)
    matmul, execute = jitgemm.matmul, product.execute
    return {
        "torch    a @ b": lambda: a @ b,
        "torch    mm(a, b, out=d)": lambda: torch.mm(a, b, out=d),
        "torch    nn.Linear": lambda: theirs(a),
        "jitgemm  matmul(a, b, out=d)": lambda: matmul(a, b, out=d),
        "jitgemm  matmul(a, b)": lambda: matmul(a, b),
        "jitgemm  Matmul.execute, out=d": lambda: execute(a, b, out=d),
        "jitgemm  Matmul(), out=d": lambda: product(a, b, out=d),
        "jitgemm  Matmul.execute": lambda: execute(a, b),
        "jitgemm  torch.Linear": lambda: layer(a),
        "jitgemm  torch operator": lambda: jitgemm.torch.matmul(a, b),
    }


def main(arguments: argparse.Namespace) -> int:
    if not torch.cuda.is_available():
        print("overhead.py: there is no GPU, and what a launch costs is all that it measures", file=sys.stderr)
        return 1
    draw = random.Random(1)
    with torch.no_grad():
        for dtype in (torch.float16, torch.bfloat16):
            arms = arms_of(arguments.size, dtype)
            times: dict[str, list[float]] = {name: [] for name in arms}
            for count in range(arguments.rounds + 3):
                for name in draw.sample(list(arms), len(arms)):
                    call = arms[name]
                    torch.cuda.synchronize()
                    begin = time.perf_counter()
                    for _ in range(CALLS):
                        call()
                    if count >= 3:
                        times[name].append((time.perf_counter() - begin) / CALLS * 1e6)
            torch.cuda.synchronize()
            print(f"{jitgemm.default_context().device.name}, torch {torch.__version__}, {arguments.size}^3 {dtype}")
            for name, values in times.items():
                values.sort()
                print(f"  {name:30} {statistics.median(values):6.2f} us  ({values[len(values) // 5]:.2f} to "
                      f"{values[4 * len(values) // 5]:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
