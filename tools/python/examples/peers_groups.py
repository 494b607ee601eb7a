#!/usr/bin/env python3
"""Grouped products as mixture-of-experts layers have them when they decode, beside a fused-MoE kernel in Triton.

    tools/python/examples/peers_groups.py [--models gpt-oss-120b,mixtral] [--tokens 1,64] [--csv FILE] [--seconds 150]
    tools/python/examples/peers_groups.py --models tiny      # on the CPU, by the emulator: ours alone, right or not, no times

Weights of all experts, tokens routed by chance; `up` has gate and up stacked, `gated` is the same with silu(gate) * up, `down`
the second product; bfloat16, and e4m3 with scales of blocks. The kernel in Triton has a program
for each block of a group's rows and of columns, the list of blocks is made beforehand, and it is the best of its tiles;
for `gated` also the best of one kernel and of two. One captured graph an arm, over sets that no cache holds together; arms take
turns in random order, medians; each arm's output is compared with float32's in some rows. `read` is what must move at
--bandwidth and a microsecond, over the time.

As a file of arms for a bench of another's: arms(case) gives ours for its tensors A, W by w(i), ends, D, and scales SA, SB.
"""
from __future__ import annotations

import argparse
import csv
import random
import statistics
import sys
import time
from collections.abc import Callable

MODELS = {  # experts, of them for a token, hidden, intermediate
    "gpt-oss-120b": (128, 4, 2880, 2880),
    "mixtral": (8, 2, 4096, 14336),
    "qwen3-30b": (128, 8, 2048, 768),
    "deepseek-v3": (256, 8, 7168, 2048),
    "tiny": (8, 2, 144, 80),
}
KINDS = ("up", "gated", "down")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help=f"of {', '.join(MODELS)} [all but tiny; tiny without a GPU]")
    parser.add_argument("--tokens", help="of steps of decoding [1,8,64,256,512; 1,16 of the tiny one]")
    parser.add_argument("--types", default="bf16,fp8", help="of bf16, fp8 [both]")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of {', '.join(KINDS)} [all]")
    parser.add_argument("--rounds", type=int, default=11, help="samples of each arm [11]")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after these")
    parser.add_argument("--tuning-seconds", type=float, default=0.5, help="that a problem of ours may be measured for [0.5]")
    parser.add_argument("--bandwidth", type=float, default=4.55, help="TB/s that the GPU reads at [4.55, an H200's]")
    parser.add_argument("--csv", help="write a line for each arm to this file")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


ARGUMENTS = parse() if __name__ == "__main__" else None  # --help needs none of what is imported now

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import jitgemm  # noqa: E402
from jitgemm import epilogues  # noqa: E402

Tensor = torch.Tensor
Arm = Callable[[int], Tensor]  # of a set of inputs
BLOCK = 128  # of scales
LARGEST = 448.0  # of e4m3
COLD = 600e6  # bytes that all sets touch together, several times what a cache holds


def arms(case: dict) -> dict[str, Arm]:
    if "ends" not in case or case["dtype"] not in ("bf16", "fp8_block"):
        return {}
    scaled = case["dtype"] == "fp8_block"
    expected = max(1, -(-case["rows"] // case["G"]))
    scales_of_b = [scales.mT for scales in case["SB"]] if scaled else []

    def product(i: int) -> Tensor:
        scales = {"scale_a": case["SA"][i], "scale_b": scales_of_b[i % len(scales_of_b)]} if scaled else {}
        return jitgemm.grouped_mm(case["A"][i], case["w"](i).mT, case["ends"][i], out=case["D"][i], expected_m=expected,
                                  epilogue=case.get("epilogue"), **scales)

    return {"jitgemm": product}


class Weights:
    """Of one product of all experts; more than one copy where one would stay in the cache."""

    def __init__(self, experts: int, n: int, k: int, scaled: bool, device: str) -> None:
        self.experts, self.n, self.k, self.scaled, self.device = experts, n, k, scaled, device
        copies = max(1, round(COLD / (experts * n * k * (1 if scaled else 2)) + 0.3)) if device == "cuda" else 1
        self.values = [drawn((experts, n, k), scaled, device, k**-0.5) for _ in range(copies)]
        self.blocks = -(-n // BLOCK), -(-k // BLOCK)
        self.scales = [(torch.rand((experts, *self.blocks), device=device) + 0.5) * k**-0.5 / 100
                       for _ in range(copies if scaled else 0)]

    def exact(self, copy: int, expert: int) -> Tensor:
        values = self.values[copy][expert].float()
        return values * wide(wide(self.scales[copy][expert], 0, self.n), 1, self.k) if self.scaled else values


def drawn(shape: tuple[int, ...], scaled: bool, device: str, deviation: float) -> Tensor:
    if not scaled:
        return torch.empty(shape, dtype=torch.bfloat16, device=device).normal_(0, deviation)
    values = torch.empty(shape, dtype=torch.float8_e4m3fn, device=device)
    for matrix in values if len(shape) == 3 else [values]:
        matrix.copy_((torch.randn(matrix.shape, device=device) * 100).clamp(-LARGEST, LARGEST))
    return values


def wide(scales: Tensor, dimension: int, extent: int) -> Tensor:
    return scales.repeat_interleave(BLOCK, dimension).narrow(dimension, 0, extent)


def routings_of(experts: int, top_k: int, tokens: int, count: int) -> list[list[int]]:
    """Rows of each expert. Of one token, sets share no expert as long as there are others."""
    if tokens == 1:
        order = random.sample(range(experts), experts)
        chosen = [[order[(i * top_k + j) % experts] for j in range(top_k)] for i in range(count)]
        return [[int(expert in those) for expert in range(experts)] for those in chosen]
    routings = []
    for _ in range(count):
        rows = [0] * experts
        for _ in range(tokens):
            for expert in random.sample(range(experts), top_k):
                rows[expert] += 1
        routings.append(rows)
    return routings


class Case:
    """The tensors of one product: what arms() reads, and what it should give."""

    def __init__(self, weights: Weights, top_k: int, tokens: int, gated: bool) -> None:
        self.weights, self.gated = weights, gated
        n, k, size = weights.n, weights.k, 1 if weights.scaled else 2
        cuda = weights.device == "cuda"
        rows = tokens * top_k
        touched = min(weights.experts, rows) * n * k * size
        self.routings = routings_of(weights.experts, top_k, tokens, max(2, min(32, round(COLD / touched + 0.5))) if cuda else 1)
        self.sets = len(self.routings)
        self.columns = n // 2 if gated else n
        active = sum(sum(1 for x in routing if x) for routing in self.routings) / self.sets
        self.bytes = size * (rows * k + active * n * k) + 2 * rows * self.columns
        device = weights.device
        self.a = [drawn((rows, k), weights.scaled, device, 1) for _ in self.routings]
        self.scales = [jitgemm.block_scales((torch.rand(rows, -(-k // BLOCK), device=device) + 0.5) / 100, a)
                       for a in self.a] if weights.scaled else []
        self.d = [torch.empty(rows, self.columns, dtype=torch.bfloat16, device=device) for _ in self.routings]
        self.ends = [torch.tensor(routing, device=device).cumsum(0).int() for routing in self.routings]
        live = [expert for expert, x in enumerate(self.routings[0]) if x]
        self.rows, expected = [], []
        for expert in {live[0], live[-1]}:
            first = sum(self.routings[0][:expert])
            some = list(range(first, first + min(self.routings[0][expert], 16)))
            self.rows += some
            a = self.a[0][some].float()
            if weights.scaled:
                a = a * wide(self.scales[0][some], 1, k)
            x = a @ weights.exact(0, expert).t()
            expected.append(gate(x) if gated else x)
        self.expected = torch.cat(expected)

    def w(self, i: int) -> Tensor:
        return self.weights.values[i % len(self.weights.values)]

    def as_case(self) -> dict:
        return {"dtype": "fp8_block" if self.weights.scaled else "bf16", "A": self.a, "D": self.d, "SA": self.scales,
                "SB": self.weights.scales, "ends": self.ends, "rows": self.a[0].shape[0], "G": self.weights.experts, "w": self.w}

    def ours(self) -> Arm:
        plain = arms({**self.as_case(), **({"D": [None] * self.sets} if self.gated else {})})["jitgemm"]
        if not self.gated:
            return plain
        plain(0)  # what runs with an epilogue is what is best without it, which is measured where it is first called
        return arms({**self.as_case(), "epilogue": epilogues.silu_gate("halves")})["jitgemm"]

    def error(self, arm: Arm) -> float:
        self.d[0].fill_(float("nan"))
        return float((arm(0)[self.rows].float() - self.expected).norm() / self.expected.norm())


def gate(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return F.silu(first) * second


def main(arguments: argparse.Namespace) -> int:
    from beside_peers import all_known, prepare_gpu  # not above: a bench of another's loads this file alone
    from graph_times import spread, timed
    from moe_triton import TILES, by_triton, triton

    begin = time.perf_counter()
    gpu = torch.cuda.is_available()
    models = arguments.models.split(",") if arguments.models else [x for x in MODELS if (x == "tiny") != gpu]
    for asked, known in ((models, MODELS), (arguments.types.split(","), TILES), (arguments.kinds.split(","), KINDS)):
        if not all_known("peers_groups.py", asked, known):
            return 1
    if not gpu and models != ["tiny"]:
        print("peers_groups.py: there is no GPU, and the emulator takes hours for these sizes; use --models tiny", file=sys.stderr)
        return 1
    random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    device = "cuda" if gpu else "cpu"
    if gpu:
        prepare_gpu(arguments.tuning_seconds)
    where = torch.cuda.get_device_name() if gpu else "emulator, which says nothing about speed"
    print(f"{where}, torch {torch.__version__}, Triton {triton.__version__ if triton else 'not there'}")
    tokens = [int(word) for word in (arguments.tokens or ("1,16" if models == ["tiny"] else "1,8,64,256,512")).split(",")]
    lines = [["model", "type", "kind", "tokens", "n", "k", "arm", "us", "spread", "read", "error"]]
    ratios: dict[tuple[str, str], list[float]] = {}
    failed, left = False, 0
    print(f"{'model':14}{'type':6}{'kind':7}{'tokens':>6}{'ours us':>10}{'spread':>8}{'read':>7}{'error':>9}{'triton us':>11}"
          f"{'spread':>8}{'read':>7}{'ratio':>8}")
    with torch.no_grad():
        for model in models:
            experts, top_k, hidden, inner = MODELS[model]
            for kind_of_type in arguments.types.split(","):
                scaled = kind_of_type == "fp8"
                weights: dict[bool, Weights] = {}
                for kind in arguments.kinds.split(","):
                    down = kind == "down"
                    for count in tokens:
                        if time.perf_counter() - begin > arguments.seconds:
                            left += 1
                            continue
                        if down not in weights:
                            weights.clear()
                            weights[down] = Weights(experts, *((hidden, inner) if down else (2 * inner, hidden)), scaled, device)
                        case = Case(weights[down], top_k, count, kind == "gated")
                        those = {"jitgemm": case.ours()}
                        if gpu and triton:
                            those.update(by_triton(case))
                        errors = {name: case.error(arm) for name, arm in those.items()}
                        times = timed(those, case.sets, arguments.rounds) if gpu else {}
                        cells = []
                        for name in those:
                            us = statistics.median(times[name]) if times else float("nan")
                            read = (case.bytes / arguments.bandwidth * 1e-6 + 1) / us
                            figures = [f"{us:.2f}", f"{spread(times[name]):.3f}", f"{read:.3f}"] if times else [""] * 3
                            cells += [*figures, f"{errors[name]:.1e}"]
                            lines.append([model, kind_of_type, kind, count, case.weights.n, case.weights.k, name, *cells[-4:]])
                        wrong = not errors["jitgemm"] <= 4e-3
                        failed = failed or wrong
                        text = f"{model:14}{kind_of_type:6}{kind:7}{count:6}{cells[0]:>10}{cells[1]:>8}{cells[2]:>7}{cells[3]:>9}"
                        if "triton" in those:
                            ratio = statistics.median(times["triton"]) / statistics.median(times["jitgemm"])
                            ratios.setdefault((kind_of_type, kind), []).append(ratio)
                            text += f"{cells[4]:>11}{cells[5]:>8}{cells[6]:>7}{ratio:8.3f}"
                            text += "" if errors["triton"] <= 8e-3 else f" triton's error {errors['triton']:.1e}"
                        print(text + (" WRONG" if wrong else ""), flush=True)
                        del case, those
                weights.clear()
                if gpu:
                    torch.cuda.empty_cache()
    for (kind_of_type, kind), values in ratios.items():
        print(f"{kind_of_type:6}{kind:7} ours over Triton's: {statistics.geometric_mean(values):.3f} of {len(values)}, "
              f"{min(values):.3f} to {max(values):.3f}")
    print(f"{time.perf_counter() - begin:.0f} s{f'; {left} cases were left, as time was up' if left else ''}")
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            csv.writer(file).writerows(lines)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
