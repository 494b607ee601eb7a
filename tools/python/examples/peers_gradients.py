#!/usr/bin/env python3
"""Gradients of mixture-of-experts weights, grouped along k, beside torch's grouped product: dW[e] = dY[its rows].T @ X[its rows].

    tools/python/examples/peers_gradients.py [--cases deepgemm,crashes,many] [--sizes uniform,zipf] [--csv FILE]
    tools/python/examples/peers_gradients.py --cases tiny      # on the CPU, by the emulator: ours alone, right or not, no times

Rows of dY and of X lie contiguous, as a backward pass has them. `uniform` sizes are the mean times 0.7 to 1.3, one group
has none and one has 128 rows, all multiples of 128, as other libraries ask for; `zipf` sizes are as they come, the e-th expert's
share of the rows 1/e, in random order. bfloat16 gives bfloat16, or is added to float32; e4m3 with one scale gives bfloat16
(--types). One captured graph an arm, arms take turns in random order, medians; each arm's output is compared with float64's in
some groups. `TFLOP/s` are of the rows alone.

--arms FILE is Python with arms(case), which gives further arms by name: functions of a set's number that return an array of
(groups, M, N). A case has dY, X (lists, one a set), sizes (a list of lists), ends (int32), D, type, G, M, N.
"""
from __future__ import annotations

import argparse
import importlib.util
import math
import random
import statistics
import sys
import time
from collections.abc import Callable

CASES = {  # groups, M, N, rows a group: DeepGEMM's tests, what crashed it or others (its issues 237, 405, 110, 121), many groups
    "deepgemm": [(4, 4096, 7168, 8192), (4, 7168, 2048, 8192), (8, 4096, 7168, 4096), (8, 7168, 2048, 4096),
                 (16, 4096, 7168, 2048), (16, 7168, 2048, 2048)],
    "crashes": [(8, 2048, 768, 4096), (8, 768, 1536, 4096), (8, 512, 1024, 18432), (8, 1536, 256, 2048)],
    "many": [(128, 1536, 2048, 256), (128, 2048, 768, 256), (64, 768, 2048, 128), (256, 4096, 7168, 128)],
    "tiny": [(5, 96, 136, 160)],
}
TYPES = ("bf16", "added", "fp8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", help=f"of {', '.join(CASES)} [all but tiny; tiny without a GPU]")
    parser.add_argument("--sizes", default="uniform,zipf", help="of uniform, zipf [both]")
    parser.add_argument("--types", default="bf16,added,fp8", help="of bf16, added, fp8 [all]")
    parser.add_argument("--rounds", type=int, default=11, help="samples of each arm [11]")
    parser.add_argument("--tuning-seconds", type=float, default=0.5, help="that a problem of ours may be measured for [0.5]")
    parser.add_argument("--arms", metavar="FILE", help="Python with further arms")
    parser.add_argument("--csv", help="write a line for each arm to this file")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


ARGUMENTS = parse() if __name__ == "__main__" else None  # --help needs none of what is imported now

import torch  # noqa: E402

import jitgemm  # noqa: E402
from beside_peers import all_known, prepare_gpu  # noqa: E402
from csv_lines import CsvLines  # noqa: E402
from graph_times import spread, timed  # noqa: E402

Tensor = torch.Tensor
Arm = Callable[[int], Tensor]  # of a set of inputs
COLD = 300e6  # bytes that all sets touch together, several times what a cache holds
COLUMNS = ["type", "sizes", "groups", "m", "n", "rows", "arm", "us", "spread", "tflops", "error"]


def uniform(groups: int, rows: int) -> list[int]:
    sizes = [max(1, round(rows * random.uniform(0.7, 1.3) / 128)) * 128 for _ in range(groups)]
    first, second = random.sample(range(groups), 2)
    sizes[first], sizes[second] = 0, 128
    return sizes


def zipf(groups: int, rows: int) -> list[int]:
    shares = [1 / (e + 1) for e in range(groups)]
    random.shuffle(shares)
    ends = [round(sum(shares[: e + 1]) / sum(shares) * groups * rows) for e in range(groups)]
    return [end - begin for begin, end in zip([0, *ends], ends)]


class Case:
    """The tensors of one product, and what it should give in some groups."""

    def __init__(self, kind: str, sizes: Callable[[int, int], list[int]], shape: tuple[int, int, int, int], device: str) -> None:
        self.type, (self.G, self.M, self.N, mean) = kind, shape
        size = 1 if kind == "fp8" else 2
        drawn = [sizes(self.G, mean) for _ in range(32)]
        bytes_of_set = [size * sum(x) * (self.M + self.N) + (4 if kind == "added" else 2) * self.G * self.M * self.N for x in drawn]
        count = max(2, min(32, round(COLD / bytes_of_set[0] + 0.5))) if device == "cuda" else 1
        self.sizes = drawn[:count]
        self.rows = round(statistics.mean(sum(x) for x in self.sizes))
        self.dY, self.X = ([self._values(sum(x), columns, device) for x in self.sizes] for columns in (self.M, self.N))
        self.ends = [torch.tensor(x, device=device).cumsum(0).int() for x in self.sizes]
        d = torch.float32 if kind == "added" else torch.bfloat16
        self.D = [torch.zeros(self.G, self.M, self.N, dtype=d, device=device) for _ in self.sizes]
        self.one = torch.full((1,), 0.5, device=device)
        order = sorted(range(self.G), key=lambda e: self.sizes[0][e])
        self.looked_at = sorted({order[0], order[1], order[-1]})

    def _values(self, rows: int, columns: int, device: str) -> Tensor:
        if self.type == "fp8":  # which tensor cores take with k contiguous alone
            return torch.randn(columns, rows, device=device).to(torch.float8_e4m3fn).t()
        return torch.randn(rows, columns, device=device).bfloat16()

    def expected(self) -> Tensor:
        results = []
        for e in self.looked_at:
            begin, end = sum(self.sizes[0][:e]), sum(self.sizes[0][: e + 1])
            results.append(self.dY[0][begin:end].double().t() @ self.X[0][begin:end].double())
        return torch.stack(results) * (0.25 if self.type == "fp8" else 1)


def our_arms(case: Case) -> dict[str, Arm]:
    scales = {"scale_a": case.one, "scale_b": case.one} if case.type == "fp8" else {}
    beta = 1.0 if case.type == "added" else 0.0

    def product(i: int) -> Tensor:
        return jitgemm.grouped_mm(case.dY[i].t(), case.X[i], case.ends[i], out=case.D[i], beta=beta, **scales)

    return {"jitgemm": product}


def torch_arms(case: Case) -> dict[str, Arm]:
    if case.type == "added":  # in the type of D alone, and nothing is added
        return {}
    if case.type == "fp8" and any(size % 16 for sizes in case.sizes for size in sizes):  # which its kernel asserts
        return {}
    if case.type == "bf16":
        return {"torch": lambda i: torch._grouped_mm(case.dY[i].t(), case.X[i], offs=case.ends[i])}
    a, b = (torch.full((case.G * extent,), 0.5, device=case.one.device) for extent in (case.M, case.N))
    return {"torch": lambda i: torch._scaled_grouped_mm(case.dY[i].t(), case.X[i], a, b, offs=case.ends[i], out_dtype=torch.bfloat16,
                                                       use_fast_accum=True)}


def error_of(case: Case, arm: Arm, expected: Tensor) -> float:
    """The largest of the groups looked at, of their norm; a group without rows has to be all zeros."""
    case.D[0].fill_(0 if case.type == "added" else float("nan"))
    d = arm(0)[case.looked_at].double()
    if not bool(torch.isfinite(d).all()):
        return float("inf")
    norms = expected.norm(dim=(1, 2))
    return float(((d - expected).norm(dim=(1, 2)) / torch.where(norms == 0, 1, norms)).max())


def most_wrong(case: Case) -> float:
    """The error allowed; one k-block left out is 0.03 and more. Tensor cores truncate sums, those of e4m3 to so few bits that they
    lose 2.5e-5 times the root of the rows of a group, torch's alike; bfloat16 rounds to 1.7e-3."""
    return {"added": 5e-4, "bf16": 4e-3, "fp8": math.hypot(2.5e-3, 4e-5 * math.sqrt(max(case.sizes[0])))}[case.type]


def loaded(path: str | None) -> Callable[[Case], dict[str, Arm]]:
    if path is None:
        return lambda case: {}
    spec = importlib.util.spec_from_file_location("further_arms", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"peers_gradients.py: {path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.arms


def main(arguments: argparse.Namespace) -> int:
    begin = time.perf_counter()
    gpu = torch.cuda.is_available()
    names = arguments.cases.split(",") if arguments.cases else [x for x in CASES if (x == "tiny") != gpu]
    draws = {"uniform": uniform, "zipf": zipf}
    for asked, known in ((names, CASES), (arguments.sizes.split(","), draws), (arguments.types.split(","), TYPES)):
        if not all_known("peers_gradients.py", asked, known):
            return 1
    if not gpu and names != ["tiny"]:
        print("peers_gradients.py: there is no GPU, and the emulator takes hours for these sizes; use --cases tiny", file=sys.stderr)
        return 1
    random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    device = "cuda" if gpu else "cpu"
    further = loaded(arguments.arms)
    if gpu:
        prepare_gpu(arguments.tuning_seconds)
    print(f"{torch.cuda.get_device_name() if gpu else 'emulator, which says nothing about speed'}, torch {torch.__version__}")
    lines = CsvLines(arguments.csv, COLUMNS)
    ratios: dict[tuple[str, str, str], list[float]] = {}
    failed = False
    with torch.no_grad():
        for kind in arguments.types.split(","):
            for draw in arguments.sizes.split(","):
                for shape in [shape for name in names for shape in CASES[name]]:
                    case = Case(kind, draws[draw], shape, device)
                    those = our_arms(case) | further(case)
                    if gpu:
                        those |= torch_arms(case)
                    expected, errors = case.expected(), {}
                    for name, arm in list(those.items()):
                        try:
                            errors[name] = error_of(case, arm, expected)
                        except (RuntimeError, ValueError, TypeError) as error:
                            if name == "jitgemm":
                                raise
                            print(f"{name} cannot: {str(error).splitlines()[0][:200]}", flush=True)
                            del those[name]
                    times = timed(those, len(case.sizes), arguments.rounds) if gpu else {}
                    wrong = not errors["jitgemm"] <= most_wrong(case)
                    failed = failed or wrong
                    text = f"{kind:6}{draw:8}G{case.G:<4}{case.M:5}x{case.N:<5}{case.rows:7} rows:"
                    for name, error in errors.items():
                        figures = ["", "", ""]
                        if times:
                            us = statistics.median(times[name])
                            figures = [f"{us:.2f}", f"{spread(times[name]):.3f}", f"{2e-6 * case.rows * case.M * case.N / us:.0f}"]
                            ratio = us / statistics.median(times["jitgemm"])
                            text += f"  {name} {figures[0]} us, {figures[2]} TFLOP/s" + (f", {ratio:.3f}" if name != "jitgemm" else "")
                            if name != "jitgemm":
                                ratios.setdefault((kind, draw, name), []).append(ratio)
                        text += f"{'' if times else '  ' + name} (error {error:.1e}{' WRONG' if wrong and name == 'jitgemm' else ''})"
                        lines.write([[kind, draw, case.G, case.M, case.N, case.rows, name, *figures, f"{error:.1e}"]])
                    print(text, flush=True)
                    del case, those, expected
                    if gpu:
                        torch.cuda.empty_cache()
    for (kind, draw, name), values in ratios.items():
        print(f"{kind:6}{draw:8}ours over {name}'s: {statistics.geometric_mean(values):.3f} of {len(values)}, "
              f"{min(values):.3f} to {max(values):.3f}")
    print(f"{time.perf_counter() - begin:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
