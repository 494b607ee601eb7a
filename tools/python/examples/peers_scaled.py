#!/usr/bin/env python3
"""Products of 8 bits with a scale for each row and column, to bfloat16, beside torch's and our own with one scale each.

    tools/python/examples/peers_scaled.py [--types int8,fast,promoted] [--tokens 1,16,64,128,1024,4096] [--layers 6144x4096,...]
    tools/python/examples/peers_scaled.py --layers 48x64      # on the CPU, by the emulator: ours alone, right or not, no times

Layers are N x K, by default those of Llama-8B and -70B. Of e4m3, by fast or promoted accumulation, torch's is _scaled_mm, which is
cuBLASLt with scales by rows; of int8 it is _int_mm, cuBLASLt's product with int32 sums, and a kernel in Triton that scales them.
_int_mm takes 17 rows at least, so that fewer tokens get 32. One captured graph an arm, arms take turns in random order, medians;
results are compared with float64's.
"""
from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable

LAYERS = "6144x4096,4096x4096,28672x4096,4096x14336,10240x8192,8192x8192,57344x8192,8192x28672"
TYPES = ("int8", "fast", "promoted")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default=",".join(TYPES), help="of int8, and e4m3's accumulation fast, promoted [all]")
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
from beside_peers import all_known, prepare_gpu  # noqa: E402
from csv_lines import CsvLines  # noqa: E402
from graph_times import spread, timed  # noqa: E402

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

Tensor = torch.Tensor
Arm = Callable[[int], Tensor]  # of a set of inputs
LEAST_ROWS = 32  # of torch._int_mm, which takes 17 at least
COLD = 500e6  # bytes that all sets touch together, several times what a cache holds
# Of the norm: bfloat16's rounding is 1.7e-3, and fast sums of e4m3 keep 13 bits.
MOST_ERROR = {"int8": 2.5e-3, "fast": 1e-2, "promoted": 2.5e-3}

if triton:

    @triton.jit
    def scale_kernel(sums, of_rows, of_columns, d, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
        column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        is_in = (row < m)[:, None] & (column < n)[None, :]
        at = row[:, None].to(tl.int64) * n + column[None, :]
        x = tl.load(sums + at, mask=is_in, other=0).to(tl.float32)
        rows = tl.load(of_rows + row, mask=row < m, other=0.0)
        columns = tl.load(of_columns + column, mask=column < n, other=0.0)
        tl.store(d + at, (x * rows[:, None] * columns[None, :]).to(tl.bfloat16), mask=is_in)


class Product:
    def __init__(self, kind: str, m: int, n: int, k: int, device: str) -> None:
        self.kind, self.m, self.n = kind, m, n
        self.cuda = device == "cuda"
        sets = max(2, min(64, round(COLD / (m * k + n * k + 2 * m * n)))) if self.cuda else 1
        rows = max(m, LEAST_ROWS) if kind == "int8" else m

        def drawn(*shape: int) -> Tensor:
            if kind == "int8":
                return torch.randint(-128, 128, shape, dtype=torch.int8, device=device)
            return (torch.randn(shape, device=device) * 100).clamp(-448, 448).to(torch.float8_e4m3fn)

        self.a, self.b = [drawn(rows, k) for _ in range(sets)], [drawn(n, k) for _ in range(sets)]
        self.of_rows, self.of_columns = (torch.rand(extent, device=device) / 1000 + 1e-4 for extent in (m, n))
        self.one = torch.full((1,), 1e-3, device=device)
        self.d = [torch.empty(m, n, dtype=torch.bfloat16, device=device) for _ in range(sets)]
        self.sums = [torch.empty(rows, n, dtype=torch.int32, device=device) for _ in range(sets if kind == "int8" else 0)]

    def ours(self, i: int, scale_a: Tensor, scale_b: Tensor) -> Tensor:
        settings = {} if self.kind == "int8" else {"accumulation": self.kind}
        return jitgemm.matmul(self.a[i][: self.m], self.b[i].t(), scale_a=scale_a, scale_b=scale_b, out_dtype="bf16", out=self.d[i], **settings)

    def sums_then_scaled(self, i: int) -> Tensor:
        torch._int_mm(self.a[i], self.b[i].t(), out=self.sums[i])
        scale_kernel[(triton.cdiv(self.n, 1024), triton.cdiv(self.m, 2))](
            self.sums[i], self.of_rows, self.of_columns, self.d[i], self.m, self.n, ROWS=2, COLUMNS=1024)
        return self.d[i]

    def torchs(self, i: int) -> Tensor:
        return torch._scaled_mm(self.a[i], self.b[i].t(), self.of_rows[:, None], self.of_columns[None, :], out_dtype=torch.bfloat16,
                                use_fast_accum=self.kind == "fast", out=self.d[i])

    def arms(self) -> dict[str, Arm]:
        """The first is what is looked at, the second ours with one scale each."""
        arms: dict[str, Arm] = {"jitgemm": lambda i: self.ours(i, self.of_rows, self.of_columns),
                                "jitgemm_one_scale": lambda i: self.ours(i, self.one, self.one)}
        if self.cuda and self.kind != "int8":
            arms["torch"] = self.torchs
        elif self.cuda and triton:
            arms["int_mm_then_scale"] = self.sums_then_scaled
        return arms

    def expected(self, name: str) -> Tensor:
        x = self.a[0][: self.m].double() @ self.b[0].double().t()
        return x * 1e-6 if name == "jitgemm_one_scale" else x * self.of_rows.double()[:, None] * self.of_columns.double()


def main(arguments: argparse.Namespace) -> int:
    gpu = torch.cuda.is_available()
    if not all_known("peers_scaled.py", arguments.types.split(","), TYPES):
        return 1
    if not gpu and arguments.layers == LAYERS:
        print("peers_scaled.py: there is no GPU, and the emulator takes hours for these sizes; use --layers 48x64", file=sys.stderr)
        return 1
    device = "cuda" if gpu else "cpu"
    random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    if gpu:
        prepare_gpu(arguments.tuning_seconds)
    print(f"{torch.cuda.get_device_name() if gpu else 'emulator'}, torch {torch.__version__}")
    lines = CsvLines(arguments.csv, ["type", "m", "n", "k", "arm", "us", "spread", "error"])
    ratios: dict[str, list[float]] = {}
    failed = False
    with torch.no_grad():
        for kind in arguments.types.split(","):
            for layer in arguments.layers.split(","):
                n, k = (int(word) for word in layer.split("x"))
                for m in [int(word) for word in arguments.tokens.split(",")]:
                    product = Product(kind, m, n, k, device)
                    arms, errors = product.arms(), {}
                    for name, arm in arms.items():
                        product.d[0].fill_(float("nan"))
                        exact = product.expected(name)
                        errors[name] = float((arm(0).double() - exact).norm() / exact.norm())
                    times = timed(arms, len(product.d), arguments.rounds) if gpu else {}
                    text = f"{kind:9}{m:5} x {n} x {k}:"
                    for name, error in errors.items():
                        wrong = name.startswith("jitgemm") and not error <= MOST_ERROR[kind]
                        failed = failed or wrong
                        cells = ["", ""]
                        if times:
                            us = statistics.median(times[name])
                            cells = [f"{us:.2f}", f"{spread(times[name]):.3f}"]
                            text += f"  {name} {us:.2f} us"
                            if name != "jitgemm":
                                ratio = us / statistics.median(times["jitgemm"])
                                text += f", {ratio:.3f}"
                                ratios.setdefault(f"{kind}, {'up to' if m <= 128 else 'above'} 128 rows, {name}", []).append(ratio)
                        text += f"{'' if times else '  ' + name} (error {error:.1e}{' WRONG' if wrong else ''})"
                        lines.write([[kind, m, n, k, name, *cells, f"{error:.1e}"]])
                    print(text, flush=True)
                    del product, exact
    for name, values in ratios.items():
        print(f"{name} over ours: {statistics.geometric_mean(values):.3f} of {len(values)}, {min(values):.3f} to {max(values):.3f}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
