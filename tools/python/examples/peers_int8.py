#!/usr/bin/env python3
"""int8 products with a scale for each row and column, to bfloat16, beside torch._int_mm and a kernel in Triton that scales.

    tools/python/examples/peers_int8.py [--tokens 1,16,64,128,1024,4096] [--layers 6144x4096,...] [--csv FILE]
    tools/python/examples/peers_int8.py --layers 48x64      # on the CPU, by the emulator: ours alone, right or not, no times

Layers are N x K, by default those of Llama-8B and -70B. torch._int_mm is cuBLASLt's product with int32 sums, of 17 rows at
least, so that fewer tokens get 32. One captured graph an arm, arms take turns in random order, medians; results are compared
with float64's.
"""
from __future__ import annotations

import argparse
import random
import statistics
import sys

LAYERS = "6144x4096,4096x4096,28672x4096,4096x14336,10240x8192,8192x8192,57344x8192,8192x28672"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="1,16,64,128,1024,4096", help="rows of A, one after another")
    parser.add_argument("--layers", default=LAYERS, help="N x K each")
    parser.add_argument("--rounds", type=int, default=11, help="samples of each arm [11]")
    parser.add_argument("--tuning-seconds", type=float, default=0.4, help="that a problem of ours may be measured for [0.4]")
    parser.add_argument("--csv", help="write a line for each arm to this file")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


ARGUMENTS = parse() if __name__ == "__main__" else None  # --help needs none of what is imported now

import torch  # noqa: E402

import jitgemm  # noqa: E402
from csv_lines import CsvLines  # noqa: E402
from graph_times import spread, timed  # noqa: E402

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

Tensor = torch.Tensor
LEAST_ROWS = 32  # of torch._int_mm, which takes 17 at least
COLD = 500e6  # bytes that all sets touch together, several times what a cache holds

if triton:

    @triton.jit
    def scale_kernel(sums, of_rows, of_columns, d, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
        column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        is_in = (row < m)[:, None] & (column < n)[None, :]
        at = row[:, None].to(tl.int64) * n + column[None, :]
        x = tl.load(sums + at, mask=is_in, other=0).to(tl.float32)
        factors = tl.load(of_rows + row, mask=row < m, other=0.0)[:, None] * tl.load(of_columns + column, mask=column < n, other=0.0)[None, :]
        tl.store(d + at, (x * factors).to(tl.bfloat16), mask=is_in)


class Product:
    def __init__(self, m: int, n: int, k: int, device: str) -> None:
        self.m, self.n = m, n
        sets = max(2, min(64, round(COLD / (m * k + n * k + 2 * m * n)))) if device == "cuda" else 1
        rows = max(m, LEAST_ROWS)

        def drawn(*shape: int) -> list[Tensor]:
            return [torch.randint(-128, 128, shape, dtype=torch.int8, device=device) for _ in range(sets)]

        self.a, self.b = drawn(rows, k), drawn(n, k)
        self.of_rows, self.of_columns = (torch.rand(extent, device=device) / 1000 + 1e-4 for extent in (m, n))
        self.d = [torch.empty(m, n, dtype=torch.bfloat16, device=device) for _ in range(sets)]
        self.sums = [torch.empty(rows, n, dtype=torch.int32, device=device) for _ in range(sets)]

    def ours(self, i: int) -> Tensor:
        return jitgemm.matmul(self.a[i][: self.m], self.b[i].t(), scale_a=self.of_rows, scale_b=self.of_columns, out_dtype="bf16",
                              out=self.d[i])

    def sums_alone(self, i: int) -> Tensor:
        return torch._int_mm(self.a[i], self.b[i].t(), out=self.sums[i])

    def sums_then_scaled(self, i: int) -> Tensor:
        self.sums_alone(i)
        scale_kernel[(triton.cdiv(self.n, 1024), triton.cdiv(self.m, 2))](
            self.sums[i], self.of_rows, self.of_columns, self.d[i], self.m, self.n, ROWS=2, COLUMNS=1024)
        return self.d[i]

    def expected(self) -> Tensor:
        return (self.a[0][: self.m].double() @ self.b[0].double().t()) * self.of_rows.double()[:, None] * self.of_columns.double()


def main(arguments: argparse.Namespace) -> int:
    gpu = torch.cuda.is_available()
    if not gpu and arguments.layers == LAYERS:
        print("peers_int8.py: there is no GPU, and the emulator takes hours for these sizes; use --layers 48x64", file=sys.stderr)
        return 1
    device = "cuda" if gpu else "cpu"
    random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    if gpu:
        torch.cuda.set_stream(torch.cuda.Stream())  # on which graphs are captured, too
        jitgemm.set_default_context(jitgemm.Context("cuda", tuning_budget_seconds=arguments.tuning_seconds,
                                                    tuning_total_budget_seconds=1e6))
    print(f"{torch.cuda.get_device_name() if gpu else 'emulator'}, torch {torch.__version__}")
    lines = CsvLines(arguments.csv, ["m", "n", "k", "arm", "us", "spread", "error"])
    ratios: dict[str, list[float]] = {}
    failed = False
    with torch.no_grad():
        for layer in arguments.layers.split(","):
            n, k = (int(word) for word in layer.split("x"))
            for m in [int(word) for word in arguments.tokens.split(",")]:
                product = Product(m, n, k, device)
                exact = product.expected()
                arms = {"jitgemm": product.ours} | ({"int_mm_then_scale": product.sums_then_scaled} if gpu and triton else {})
                errors = {}
                for name, arm in arms.items():
                    product.d[0].fill_(float("nan"))
                    errors[name] = float((arm(0).double() - exact).norm() / exact.norm())
                if gpu:
                    arms["int_mm_alone"] = product.sums_alone
                times = timed(arms, len(product.d), arguments.rounds) if gpu else {}
                wrong = not errors["jitgemm"] <= 2.5e-3
                failed = failed or wrong
                text = f"{m:5} x {n} x {k}: "
                for name in arms:
                    us = statistics.median(times[name]) if times else None
                    error = f"{errors[name]:.1e}" if name in errors else ""
                    text += f" {name}" + (f" {us:.2f} us" if us else "") + (f" (error {error})" if error else "")
                    lines.write([[m, n, k, name, f"{us:.2f}" if us else "", f"{spread(times[name]):.3f}" if us else "", error]])
                    if us and name != "jitgemm":
                        ratio = us / statistics.median(times["jitgemm"])
                        text += f" {ratio:.3f}"
                        ratios.setdefault(f"{name}, {'up to' if m <= 128 else 'above'} 128 rows", []).append(ratio)
                print(text + (" WRONG" if wrong else ""), flush=True)
                del product, exact
    for name, values in ratios.items():
        print(f"ours over {name}: {statistics.geometric_mean(values):.3f} of {len(values)}, {min(values):.3f} to {max(values):.3f}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
