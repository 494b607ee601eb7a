#!/usr/bin/env python3
"""Tokens a second of a mixture-of-experts layer of Hugging Face's transformers, by default Qwen3-30B-A3B's, with its experts by
transformers, by torch and by jitgemm.

    tools/python/examples/moe_layer.py [--prefill 4096] [--decode 1,16,256] [--csv FILE]
    tools/python/examples/moe_layer.py --config tiny        # on the CPU, by the emulator: right or not, no times

Random weights, bfloat16, which all arms share; the router is transformers'. Ours: rows are sorted by their expert on the
device, silu(gate) * up is the epilogue of one grouped product, the router's weights that of the next, and a token's rows are
added. Nothing waits for the device, so that the layer is captured into a CUDA graph. Beside it are each way that the installed
transformers has for its experts, and ours with torch's grouped product in the place of jitgemm's. Arms are timed call by call
and as graphs, the better ones as torch.compile makes them, too; each call has other tokens, arms take turns in random order,
medians. Results are compared with float32's, and ours is wrong where it is further off than transformers' loop by a fifth.
"""
from __future__ import annotations

import argparse
import copy
import csv
import random
import statistics
import sys
import time
from collections.abc import Callable

CONFIGS = {  # of Qwen3MoeConfig
    "qwen3-30b": dict(hidden_size=2048, moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8),
    "tiny": dict(hidden_size=64, moe_intermediate_size=32, num_experts=8, num_experts_per_tok=2),
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=CONFIGS, help="[qwen3-30b; tiny without a GPU]")
    parser.add_argument("--prefill", type=int, help="tokens of the prefill [4096; 33 of the tiny one]; 0: none")
    parser.add_argument("--decode", default="1,16,256", help="tokens of steps of decoding, one case after another [1,16,256]")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each arm [15]")
    parser.add_argument("--seconds", type=float, default=600, help="torch.compile begins nothing after half of these [600]")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile away")
    parser.add_argument("--csv", help="write a line for each arm to this file")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


ARGUMENTS = parse() if __name__ == "__main__" else None  # --help needs none of what is imported now

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import transformers  # noqa: E402
from transformers import Qwen3MoeConfig  # noqa: E402
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock  # noqa: E402

import jitgemm  # noqa: E402
from jitgemm import epilogues  # noqa: E402

Tensor = torch.Tensor
Layer = Callable[[Tensor], Tensor]
MOST_GATHERED = 8 << 30  # bytes of weights, a copy for each row, that "batched_mm" may make
BY_ROUTER = jitgemm.Epilogue("""\
// operand in weight along_m bf16
__device__ float epilogue(float x, const Args& args, Out&) { return x * args.weight; }
""")


# What torch.compile sees of the two products; without it they are called as they are, which costs the host less.
@torch.library.custom_op("moe_layer::gated", mutates_args=())
def gated_product(x: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    return jitgemm.grouped_mm(x, weight.mT, offs, epilogue=epilogues.silu_gate("halves"))


@gated_product.register_fake
def _(x: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1] // 2)


@torch.library.custom_op("moe_layer::weighted", mutates_args=())
def weighted_product(x: Tensor, weight: Tensor, offs: Tensor, factors: Tensor) -> Tensor:
    return jitgemm.grouped_mm(x, weight.mT, offs, epilogue=BY_ROUTER, operands={"weight": factors})


@weighted_product.register_fake
def _(x: Tensor, weight: Tensor, offs: Tensor, factors: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[1])


class JitgemmProducts:
    def gated(self, x: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return gated_product(x, weight, offs)
        return jitgemm.grouped_mm(x, weight.mT, offs, epilogue=epilogues.silu_gate("halves"))

    def weighted(self, x: Tensor, weight: Tensor, offs: Tensor, factors: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return weighted_product(x, weight, offs, factors)
        return jitgemm.grouped_mm(x, weight.mT, offs, epilogue=BY_ROUTER, operands={"weight": factors})


class BareProducts(JitgemmProducts):
    """What runs with an epilogue is what is best without it, which is measured where it is first called."""

    def gated(self, x: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
        return jitgemm.grouped_mm(x, weight.mT, offs).chunk(2, dim=-1)[0].contiguous()

    def weighted(self, x: Tensor, weight: Tensor, offs: Tensor, factors: Tensor) -> Tensor:
        return jitgemm.grouped_mm(x, weight.mT, offs)


class TorchProducts:
    def __init__(self) -> None:
        self.grouped = getattr(F, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)

    def gated(self, x: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
        gate, up = self.grouped(x, weight.mT, offs=offs).chunk(2, dim=-1)
        return F.silu(gate) * up

    def weighted(self, x: Tensor, weight: Tensor, offs: Tensor, factors: Tensor) -> Tensor:
        return self.grouped(x, weight.mT, offs=offs) * factors.unsqueeze(1)


class Experts(torch.nn.Module):
    """Takes what transformers' own experts take; gate_up is (experts, 2 * intermediate, hidden), down (experts, hidden,
    intermediate)."""

    def __init__(self, gate_up: Tensor, down: Tensor, products: JitgemmProducts | TorchProducts) -> None:
        super().__init__()
        self.gate_up, self.down, self.products = gate_up, down, products
        experts = gate_up.shape[0]
        self.ids = torch.uint8 if experts <= 256 else torch.int32  # the fewer bits, the sooner they are sorted
        self.register_buffer("experts", torch.arange(experts, device=gate_up.device).to(self.ids), persistent=False)

    def forward(self, hidden: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        tokens, top_k = top_k_index.shape
        of_rows, order = top_k_index.flatten().to(self.ids).sort()
        offs = torch.searchsorted(of_rows, self.experts, right=True, out_int32=True)
        # Of one token all rows are the same and add up in any order, which saves four kernels of some twenty.
        rows = hidden.expand(top_k, -1).contiguous() if tokens == 1 else hidden[order // top_k]
        h = self.products.gated(rows, self.gate_up, offs)
        y = self.products.weighted(h, self.down, offs, top_k_weights.flatten()[order])
        if tokens == 1:
            return y.sum(0, keepdim=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(tokens * top_k, device=order.device)
        return y[place].view(tokens, top_k, -1).sum(1)


class Moe(torch.nn.Module):
    """A layer of transformers with other experts."""

    def __init__(self, block: torch.nn.Module, experts: Experts, top_k: int) -> None:
        super().__init__()
        self.gate, self.experts, self.top_k = block.gate, experts, top_k
        # Where the router is but a Linear, as before transformers 5, the rest of it is the layer's.
        self.norm_topk_prob = block.norm_topk_prob if isinstance(block.gate, torch.nn.Linear) else None

    def route(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        if self.norm_topk_prob is None:
            _, weights, index = self.gate(hidden)
            return index, weights
        weights, index = F.softmax(self.gate(hidden), dim=1, dtype=torch.float).topk(self.top_k, dim=-1)
        if self.norm_topk_prob:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return index, weights.to(hidden.dtype)

    def forward(self, hidden: Tensor) -> Tensor:
        flat = hidden.reshape(-1, hidden.shape[-1])
        return self.experts(flat, *self.route(flat)).view(hidden.shape)


def make_block(name: str, device: str) -> tuple[torch.nn.Module, Qwen3MoeConfig]:
    config = Qwen3MoeConfig(**CONFIGS[name], norm_topk_prob=True)
    if hasattr(config, "_experts_implementation"):
        config._experts_implementation = "eager"
    with torch.device(device):
        block = Qwen3MoeSparseMoeBlock(config).to(torch.bfloat16).eval()
    for parameter in block.parameters():
        parameter.requires_grad_(False).normal_(0, config.initializer_range if name != "tiny" else 0.1)
    return block, config


def stacked(block: torch.nn.Module) -> tuple[Tensor, Tensor]:
    """Weights of all experts; those that lie apart, as before transformers 5, become views of the stacked ones."""
    experts = block.experts
    if hasattr(experts, "gate_up_proj"):
        return experts.gate_up_proj.data, experts.down_proj.data
    inner = experts[0].gate_proj.weight.shape[0]
    gate_up = torch.stack([torch.cat([expert.gate_proj.weight, expert.up_proj.weight]) for expert in experts])
    down = torch.stack([expert.down_proj.weight for expert in experts])
    for expert, first, second in zip(experts, gate_up, down):
        expert.gate_proj.weight.data, expert.up_proj.weight.data = first[:inner], first[inner:]
        expert.down_proj.weight.data = second
    return gate_up, down


def ways_of_transformers(block: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Its own loop, and the others that it has, on the same parameters."""
    ways = {"loop": block}
    if not hasattr(block.experts, "config"):
        return ways
    for name in ("grouped_mm", "batched_mm"):
        other = copy.deepcopy(block, memo={id(tensor): tensor for tensor in block.parameters()})
        other.experts.config._experts_implementation = name
        ways[name] = other
    return ways


def exact(gate_up: Tensor, down: Tensor, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """By float32, one expert after another."""
    result = torch.zeros(hidden.shape, device=hidden.device)
    for expert in index.unique().tolist():
        token, place = torch.where(index == expert)
        gate, up = (hidden[token].float() @ gate_up[expert].float().t()).chunk(2, dim=-1)
        y = (F.silu(gate) * up) @ down[expert].float().t()
        result.index_add_(0, token, y * weights[token, place, None].float())
    return result


class Clock:
    """Of arms on one GPU."""

    def __init__(self, inputs: list[Tensor], rounds: int) -> None:
        self.inputs, self.rounds = inputs, rounds
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def graph_of(self, layer: Layer) -> Callable[[], object]:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for x in self.inputs:
                layer(x)
        return graph.replay

    def calls_of(self, layer: Layer) -> Callable[[], object]:
        return lambda: [layer(x) for x in self.inputs]

    def microseconds(self, runs: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
        """Of a call, in each round."""
        times: dict[str, list[float]] = {name: [] for name in runs}
        for count in range(self.rounds + 1):
            for name in random.sample(list(runs), len(runs)):
                torch.cuda.synchronize()
                self.begin.record()
                runs[name]()
                self.end.record()
                self.end.synchronize()
                if count:
                    times[name].append(self.begin.elapsed_time(self.end) * 1e3 / len(self.inputs))
        return times


def spread(values: list[float]) -> float:
    ordered = sorted(values)
    return (ordered[int(0.8 * (len(ordered) - 1))] - ordered[int(0.2 * (len(ordered) - 1))]) / statistics.median(ordered)


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:100]


class Case:
    """All arms, of one number of tokens."""

    def __init__(self, label: str, tokens: int, arms: dict[str, Layer], ours: Moe, device: str, hidden: int) -> None:
        self.label, self.tokens, self.arms, self.ours = label, tokens, arms, ours
        sets = max(2, min(16, 512 // tokens))  # so that no weights are still in the cache
        self.inputs = [torch.randn(1, tokens, hidden, device=device).bfloat16() for _ in range(sets if device == "cuda" else 1)]
        self.errors: dict[str, float] = {}
        self.left: dict[str, str] = {}  # out, and why

    def check(self) -> None:
        """Of each arm, beside float32's, for some of the tokens."""
        x = self.inputs[0]
        if x.is_cuda:
            Moe(self.ours, Experts(self.ours.experts.gate_up, self.ours.experts.down, BareProducts()), self.ours.top_k)(x)
        some = torch.randperm(self.tokens, device=x.device)[:256]
        index, weights = self.ours.route(x[0])
        expected = exact(self.ours.experts.gate_up, self.ours.experts.down, x[0, some], index[some], weights[some])
        for name, layer in list(self.arms.items()):
            try:
                self.errors[name] = float((layer(x)[0, some].float() - expected).norm() / expected.norm())
            except Exception as error:
                self.left[name] = first_line(error)
                del self.arms[name]

    def measure(self, rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """Microseconds of calls, and of calls in a graph."""
        clock = Clock(self.inputs, rounds)
        calls = {name: clock.calls_of(layer) for name, layer in self.arms.items()}
        for run in calls.values():  # what is tuned or compiled at first is so now
            run()
        graphs = {}
        for name, layer in self.arms.items():
            if name == "loop":
                continue  # it asks the device which experts have rows
            try:
                graphs[name] = clock.graph_of(layer)
            except Exception as error:
                torch.cuda.synchronize()
                self.left[f"{name} as a graph"] = first_line(error)
        return clock.microseconds(calls), clock.microseconds(graphs)


def main(arguments: argparse.Namespace) -> int:
    begin = time.perf_counter()
    gpu = torch.cuda.is_available()
    name = arguments.config or ("qwen3-30b" if gpu else "tiny")
    if not gpu and name != "tiny":
        print("moe_layer.py: there is no GPU, and the emulator takes hours for this size; use --config tiny", file=sys.stderr)
        return 1
    random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    device = "cuda" if gpu else "cpu"
    block, config = make_block(name, device)
    gate_up, down = stacked(block)
    top_k, hidden = config.num_experts_per_tok, config.hidden_size
    where = torch.cuda.get_device_name() if gpu else "emulator, which says nothing about speed"
    print(f"{where}, torch {torch.__version__}, transformers {transformers.__version__}; {config.num_experts} experts, "
          f"{top_k} a token, hidden {hidden}, intermediate {config.moe_intermediate_size}")
    ours = Moe(block, Experts(gate_up, down, JitgemmProducts()), top_k)
    ways: dict[str, torch.nn.Module] = dict(ways_of_transformers(block))
    products = TorchProducts()
    if products.grouped:
        ways["torch"] = Moe(block, Experts(gate_up, down, products), top_k)
    ways["jitgemm"] = ours
    best_to_compile = [next((way for way in ("grouped_mm", "torch") if way in ways), None), "jitgemm"]

    def layer_of(module: torch.nn.Module) -> Layer:
        def layer(x: Tensor) -> Tensor:
            y = module(x)
            return y[0] if isinstance(y, tuple) else y  # with the router's logits, before transformers 5
        return layer

    prefill = arguments.prefill if arguments.prefill is not None else 4096 if name != "tiny" else 33
    cases = [(f"decode {tokens}", int(tokens)) for tokens in arguments.decode.split(",") if tokens]
    cases += [(f"prefill {prefill}", prefill)] if prefill else []
    lines, summary, failed = [["case", "arm", "error", "us", "spread", "graph_us", "graph_spread", "tokens_per_second"]], [], False
    with torch.no_grad():
        for label, tokens in cases:
            arms = {way: layer_of(module) for way, module in ways.items()}
            if tokens * top_k * (gate_up[0].nbytes + down[0].nbytes) > MOST_GATHERED:
                arms.pop("batched_mm", None)
            if gpu and not arguments.no_compile and time.perf_counter() - begin < arguments.seconds / 2:
                torch.compiler.reset()  # each number of tokens is compiled for itself
                for way in filter(None, best_to_compile):
                    arms[f"{way}, compiled"] = layer_of(torch.compile(ways[way], dynamic=False))
            case = Case(label, tokens, arms, ours, device, hidden)
            case.check()
            calls, graphs = case.measure(arguments.rounds) if gpu else ({}, {})
            rates = {}
            print(f"\n{label:28}{'error':>9}{'us':>10}{'spread':>8}{'in a graph':>12}{'spread':>8}{'tokens/s':>12}")
            for arm, error in case.errors.items():
                wrong = "jitgemm" in arm and not error <= 1.2 * case.errors["loop"]
                failed = failed or wrong
                line = [label, arm, f"{error:.2e}", *([f"{statistics.median(times[arm]):.2f}", f"{spread(times[arm]):.3f}"]
                                                      if arm in times else ["", ""] for times in (calls, graphs))]
                line = [*line[:3], *line[3], *line[4], ""]
                if arm in calls:
                    best = min(statistics.median(times[arm]) for times in (calls, graphs) if arm in times)
                    rates[arm] = tokens / best * 1e6
                    line[-1] = f"{rates[arm]:.0f}"
                lines.append(line)
                print(f"  {arm:26}{error:9.4f}{line[3]:>10}{line[4]:>8}{line[5]:>12}{line[6]:>8}{line[7]:>12}"
                      f"{' WRONG' if wrong else ''}", flush=True)
            for arm, why in case.left.items():
                print(f"  {arm:26} left out: {why}", flush=True)
            failed = failed or "jitgemm" not in case.errors
            if "jitgemm" in rates:
                theirs = max((arm for arm in rates if "jitgemm" not in arm), key=rates.__getitem__)
                own = max((arm for arm in rates if "jitgemm" in arm), key=rates.__getitem__)
                summary.append(f"{label:14} {theirs:22}{rates[theirs]:12.0f}   {own:18}{rates[own]:12.0f}"
                               f"{rates[own] / rates[theirs]:8.3f}")
            torch.cuda.empty_cache()
    if summary:
        print(f"\n{'':14} {'best of torch':22}{'tokens/s':>12}   {'ours':18}{'tokens/s':>12}{'ratio':>8}", *summary, sep="\n")
    print(f"{time.perf_counter() - begin:.0f} s")
    if arguments.csv:
        with open(arguments.csv, "w", newline="") as file:
            csv.writer(file).writerows(lines)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
