#!/usr/bin/env python3
"""Tokens a second of a SwiGLU MLP, by default of Llama-8B's size, beside torch's own: in bf16, and in e4m3 with a scale
for each row of activations and of weights.

    tools/python/examples/swiglu_mlp.py [--tokens 1,16,64,256,1024,4096] [--csv FILE]
    tools/python/examples/swiglu_mlp.py --config tiny        # on the CPU, by the emulator: right or not, no times

Ours: silu(gate) * up is the epilogue of the product with both weights stacked, and with e4m3 so are its scales. Torch's: one
product with the stacked weights, torch.compile's kernel for silu(gate) * up, and torch._scaled_mm with scales by rows. Both
quantise activations by the same compiled kernels, which are part of the time. Each arm is one CUDA graph; arms take
turns in random order, medians. Results are compared with float32's, and ours is wrong where it is further off than torch's
by a fifth.
"""
from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable

SIZES = {"llama-8b": (4096, 14336), "tiny": (64, 96)}  # hidden, intermediate
LARGEST = 448.0  # of e4m3
SCALED_GATE = """\
// pairs halves
// operand in rows along_m f32
// operand in of_gate along_n f32
// operand in of_up along_n f32
__device__ float logistic(float x) { return sigmoid(-float(log2_e) * x); }
__device__ float epilogue(float gate, float up, const Args& args, Out&) {
  const float g = gate * args.rows * args.of_gate, u = up * args.rows * args.of_up;
  return g * logistic(g) * u;
}
"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=SIZES, default="llama-8b", help="sizes of the layer [llama-8b]")
    parser.add_argument("--tokens", default="1,16,64,256,1024,4096", help="rows of the input, one after another")
    parser.add_argument("--accumulation", choices=["fast", "promoted"], default="fast", help="of e4m3, on both sides [fast]")
    parser.add_argument("--rounds", type=int, default=31, help="samples of each arm [31]")
    parser.add_argument("--no-tune", action="store_true", help="run the cost model's choices")
    parser.add_argument("--csv", help="write a line for each arm to this file")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


ARGUMENTS = parse() if __name__ == "__main__" else None  # --help needs none of what is imported now

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import jitgemm  # noqa: E402
from csv_lines import CsvLines  # noqa: E402
from jitgemm import epilogues  # noqa: E402

Tensor = torch.Tensor
Layer = Callable[[], Tensor]  # of the input that it was made for


def gate(h: Tensor) -> Tensor:
    inner = h.shape[1] // 2
    return F.silu(h[:, :inner]) * h[:, inner:]


def by_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """In e4m3, and a scale for each row."""
    scale = x.abs().amax(1, keepdim=True).float().clamp(min=1e-12) / LARGEST
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def gate_by_rows(h: Tensor) -> tuple[Tensor, Tensor]:
    return by_rows(gate(h))


class Weights:
    """Of one layer, in both types; the first product's are stacked, gate above up."""

    def __init__(self, hidden: int, inner: int, device: str) -> None:
        def drawn(rows: int, columns: int) -> Tensor:
            return (torch.randn(rows, columns, device=device) * columns**-0.5).bfloat16()

        self.first, self.second = drawn(2 * inner, hidden), drawn(hidden, inner)
        (self.first8, self.scale1), (self.second8, self.scale2) = by_rows(self.first), by_rows(self.second)

    def exact(self, x: Tensor) -> Tensor:
        return gate(x.float() @ self.first.float().t()) @ self.second.float().t()


class Ours:
    """A chain of products whose arrays are made once."""

    def __init__(self, w: Weights, x: Tensor, tune: bool, compiled: Callable, accumulation: str) -> None:
        tokens, inner = x.shape[0], w.second.shape[1]
        self.x, self.quantised = x, compiled(by_rows)
        self.h, self.y = x.new_empty(tokens, inner), torch.empty_like(x)
        self.gated = jitgemm.Matmul(x, w.first.t(), epilogue=epilogues.silu_gate("halves"), out=self.h)
        self.down = jitgemm.Matmul(self.h, w.second.t(), out=self.y)
        x8, rows = self.quantised(x)
        scale1 = w.scale1.flatten()
        self.gated8 = jitgemm.Matmul(
            x8, w.first8.t(), accumulation=accumulation, epilogue=SCALED_GATE, out=self.h,
            operands={"rows": rows.flatten(), "of_gate": scale1[:inner], "of_up": scale1[inner:]})
        h8, rows = self.quantised(self.h)
        self.down8 = jitgemm.Matmul(h8, w.second8.t(), accumulation=accumulation, scale_a=rows, scale_b=w.scale2.t(),
                                    out=self.y)
        if tune:
            for product in (self.gated, self.down, self.gated8, self.down8):
                product.tune()

    def bf16(self) -> Tensor:
        self.gated()
        return self.down()

    def fp8(self) -> Tensor:
        x8, rows = self.quantised(self.x)
        self.gated8(a=x8, operands={"rows": rows.flatten()})
        h8, rows = self.quantised(self.h)
        return self.down8(a=h8, scale_a=rows)


def torchs(w: Weights, x: Tensor, compiled: Callable, accumulation: str) -> tuple[Layer, Layer]:
    gated, quantised, both = compiled(gate), compiled(by_rows), compiled(gate_by_rows)
    fast = accumulation == "fast"

    def bf16() -> Tensor:
        return gated(x @ w.first.t()) @ w.second.t()

    def product(a: Tensor, rows: Tensor, b: Tensor, columns: Tensor) -> Tensor:
        if not x.is_cuda:  # where torch has no such product
            return ((a.float() * rows) @ (b.float() * columns).t()).bfloat16()
        return torch._scaled_mm(a, b.t(), rows, columns.t(), out_dtype=torch.bfloat16, use_fast_accum=fast)

    def fp8() -> Tensor:
        h = product(*quantised(x), w.first8, w.scale1)
        return product(*both(h), w.second8, w.scale2)

    return bf16, fp8


def graph_of(layer: Layer, calls: int) -> torch.cuda.CUDAGraph:
    for _ in range(2):
        layer()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            layer()
    return graph


def timed(arms: dict[str, Layer], rounds: int) -> dict[str, float]:
    """Seconds of one call of each, medians."""
    once, graphs = {}, {}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def milliseconds(graph: torch.cuda.CUDAGraph) -> float:
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    for name, layer in arms.items():
        graph = graph_of(layer, 1)
        once[name] = min(milliseconds(graph) for _ in range(3))
        calls = max(1, min(32, int(4 / once[name])))
        graphs[name] = graph_of(layer, calls), calls
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name in random.sample(list(arms), len(arms)):
            graph, calls = graphs[name]
            times[name].append(milliseconds(graph) / calls / 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def main(arguments: argparse.Namespace) -> int:
    gpu = torch.cuda.is_available()
    if not gpu and arguments.config != "tiny":
        print("swiglu_mlp.py: there is no GPU, and the emulator takes hours for this size; use --config tiny", file=sys.stderr)
        return 1
    random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    device = "cuda" if gpu else "cpu"
    hidden, inner = SIZES[arguments.config]
    lines = CsvLines(arguments.csv, ["tokens", "type", "arm", "us", "tokens_per_second", "error"])
    failed = False
    name = torch.cuda.get_device_name() if gpu else "emulator"
    print(f"{name}, torch {torch.__version__}, hidden {hidden}, intermediate {inner}")
    with torch.no_grad():
        w = Weights(hidden, inner, device)
        for tokens in [int(word) for word in arguments.tokens.split(",")]:
            torch.compiler.reset()  # each number of tokens is compiled for itself
            compiled = (lambda f: torch.compile(f, dynamic=False)) if gpu else (lambda f: f)
            x = torch.randn(tokens, hidden, device=device).bfloat16()
            ours = Ours(w, x, gpu and not arguments.no_tune, compiled, arguments.accumulation)
            their_bf16, their_fp8 = torchs(w, x, compiled, arguments.accumulation)
            arms = {"bf16": {"jitgemm": ours.bf16, "torch": their_bf16}, "fp8": {"jitgemm": ours.fp8, "torch": their_fp8}}
            exact = w.exact(x)
            for kind, layers in arms.items():
                errors = {}
                for arm, layer in layers.items():
                    ours.y.fill_(float("nan"))
                    errors[arm] = float((layer().float() - exact).norm() / exact.norm())
                seconds = timed(layers, arguments.rounds) if gpu else {}
                wrong = not errors["jitgemm"] <= 1.2 * errors["torch"]
                failed = failed or wrong
                for arm, error in errors.items():
                    speed = f"{tokens / seconds[arm]:12.0f} tokens/s {seconds[arm] * 1e6:9.1f} us" if seconds else ""
                    print(f"{tokens:6} {kind:5} {arm:8}{speed}  error {error:.4f}"
                          f"{' WRONG' if wrong and arm == 'jitgemm' else ''}", flush=True)
                    times = [f"{seconds[arm] * 1e6:.2f}", f"{tokens / seconds[arm]:.0f}"] if seconds else ["", ""]
                    lines.write([[tokens, kind, arm, *times, f"{error:.2e}"]])
                if seconds:
                    print(f"{tokens:6} {kind:5} ours over torch's: {seconds['torch'] / seconds['jitgemm']:.3f}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
