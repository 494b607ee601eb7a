#!/usr/bin/env python3
"""A Llama-like model of Hugging Face's transformers, with its linear layers by torch and by jitgemm, side by side.

Random weights of a real configuration, bfloat16. The two models share their weights; ours is made by one call of
jitgemm.torch.replace_linear(). First the outputs are compared with a float32 model's; then prefill and decoding are
timed, each step as a CUDA graph, the two in turns of random order. The decoding graph picks the next token and moves
on, so each replay is a step of generation.

    tools/python/examples/transformer.py [--config llama-1b] [--prefill 2048] [--batches 1 8 64] [--rounds 15] [--json FILE]

On a machine without a GPU it checks the outputs alone, of the tiny configuration.
"""
from __future__ import annotations

import argparse
import copy
import json
import random
import statistics
import sys
import time
from collections.abc import Callable

CONFIGS = {
    "llama-1b": dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                     num_key_value_heads=8, head_dim=64, vocab_size=128256, tie_word_embeddings=True),
    "llama-8b": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                     num_key_value_heads=8, head_dim=128, vocab_size=128256, tie_word_embeddings=False),
    "tiny": dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                 num_key_value_heads=1, head_dim=16, vocab_size=64, tie_word_embeddings=True),
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", choices=CONFIGS, help="[llama-1b; tiny without a GPU]")
    parser.add_argument("--prefill", type=int, default=2048, help="tokens of the prefill [2048]")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64], help="sequences that are decoded at once")
    parser.add_argument("--context", type=int, default=512, help="tokens before the first that is decoded [512]")
    parser.add_argument("--rounds", type=int, default=15, help="that count [15]")
    parser.add_argument("--no-dependent-launch", action="store_true",
                        help="kernels wait for the one before them: see Context")
    parser.add_argument("--json", help="write all figures to this file")
    return parser.parse_args()


ARGUMENTS = parse() if __name__ == "__main__" else None  # --help needs none of what is imported now

import torch  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache  # noqa: E402

import jitgemm  # noqa: E402
import jitgemm.torch  # noqa: E402


def make_models(name: str, device: torch.device) -> tuple[LlamaForCausalLM, LlamaForCausalLM, list[str]]:
    """torch's model, and ours with the same parameters."""
    config = LlamaConfig(**CONFIGS[name], max_position_embeddings=8192, attn_implementation="sdpa")
    torch.manual_seed(1)
    with device:
        theirs = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    ours = copy.deepcopy(theirs, memo={id(parameter): parameter for parameter in theirs.parameters()})
    names = jitgemm.torch.replace_linear(ours)
    return theirs, ours, names


def compare(theirs: LlamaForCausalLM, ours: LlamaForCausalLM, tokens: torch.Tensor) -> dict[str, float]:
    """The norm of each one's difference from float32's logits, over those logits' norm; and the part of the logits that
    has the same bits in both. RuntimeError if ours is off."""
    reference = copy.deepcopy(theirs).float()
    expected = reference(tokens, use_cache=False).logits
    del reference

    logits = {"torch": theirs(tokens, use_cache=False).logits, "jitgemm": ours(tokens, use_cache=False).logits}
    errors = {name: float((values.float() - expected).norm() / expected.norm()) for name, values in logits.items()}
    errors["same"] = float((logits["torch"] == logits["jitgemm"]).float().mean())
    if not errors["jitgemm"] <= 1.2 * errors["torch"]:
        raise RuntimeError(f"the outputs differ: {errors}")
    return errors


class Step:
    """What is replayed: one forward pass in a CUDA graph."""

    def __init__(self, launch: Callable[[], object], reset: Callable[[], None] = lambda: None) -> None:
        self.reset = reset
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                launch()
        torch.cuda.current_stream().wait_stream(stream)
        reset()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            launch()
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def milliseconds(self, replays: int) -> float:
        """Of one replay."""
        self.reset()
        self.begin.record()
        for _ in range(replays):
            self.graph.replay()
        self.end.record()
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) / replays


def prefill_step(model: LlamaForCausalLM, tokens: torch.Tensor) -> Step:
    return Step(lambda: model(tokens, use_cache=False, logits_to_keep=1))


def decode_step(model: LlamaForCausalLM, batch: int, context: int, steps: int) -> Step:
    """One token for each sequence, after `context` tokens, for up to `steps` replays from each reset."""
    device = model.device
    cache = StaticCache(config=model.config, max_cache_len=context + steps + 8)
    token = torch.zeros((batch, 1), dtype=torch.long, device=device)
    position = torch.full((1,), context, dtype=torch.long, device=device)
    prompt = torch.randint(model.config.vocab_size, (batch, context), device=device)
    model(prompt, past_key_values=cache, use_cache=True, logits_to_keep=1)

    def launch() -> None:
        logits = model(token, past_key_values=cache, cache_position=position, position_ids=position.unsqueeze(0),
                       use_cache=True, logits_to_keep=1).logits
        token.copy_(logits[:, -1].argmax(-1, keepdim=True))
        position.add_(1)

    def reset() -> None:
        position.fill_(context)
        for layer in cache.layers:
            if isinstance(getattr(layer, "cumulative_length", None), torch.Tensor):
                layer.cumulative_length.fill_(context)

    return Step(launch, reset)


def race(steps: dict[str, Step], replays: int, rounds: int, draw: random.Random) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in steps}
    for count in range(rounds + 2):
        for name in draw.sample(list(steps), len(steps)):
            milliseconds = steps[name].milliseconds(replays)
            if count >= 2:
                times[name].append(milliseconds)
    return times


def spread(values: list[float]) -> float:
    ordered = sorted(values)
    return (ordered[int(0.8 * (len(ordered) - 1))] - ordered[int(0.2 * (len(ordered) - 1))]) / statistics.median(ordered)


def main(arguments: argparse.Namespace) -> int:
    gpu = torch.cuda.is_available()
    device = torch.device("cuda" if gpu else "cpu")
    if arguments.no_dependent_launch:
        jitgemm.set_default_context(jitgemm.Context("cuda" if gpu else "cpu", dependent_launch=False))
    name = arguments.config or ("llama-1b" if gpu else "tiny")
    draw = random.Random(1)
    with torch.inference_mode():
        theirs, ours, replaced = make_models(name, device)
        parameters = sum(parameter.numel() for parameter in theirs.parameters())
        print(f"{name}: {parameters / 1e9:.2f} billion parameters, {len(replaced)} linear layers by jitgemm")
        before = {str(result.problem) for result in jitgemm.cache.tuning_results()}
        begin = time.perf_counter()
        tokens = torch.randint(theirs.config.vocab_size, (1, arguments.prefill if gpu else 8), device=device)
        ours(tokens, use_cache=False, logits_to_keep=1)
        errors = compare(theirs, ours, tokens)
        print(f"logits against float32's: torch {errors['torch']:.2e}, jitgemm {errors['jitgemm']:.2e}; the same bits in "
              f"{errors['same']:.1%} of them")
        if not gpu:
            return 0
        figures = []
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True  # torch's default, its fastest
        cases = [("prefill", arguments.prefill, 4, lambda model: prefill_step(model, tokens))]
        cases += [(f"decode, batch {batch}", batch, 64, lambda model, batch=batch: decode_step(model, batch, arguments.context, 64))
                  for batch in arguments.batches]
        print(f"{'':18}{'torch':>12}{'jitgemm':>12}  tokens a second, medians{'':6}{'ratio':>8}{'spread':>8}")
        for label, tokens_a_step, replays, make in cases:
            steps = {"torch": make(theirs), "jitgemm": make(ours)}
            times = race(steps, replays, arguments.rounds, draw)
            rates = {key: tokens_a_step / statistics.median(values) * 1000 for key, values in times.items()}
            ratios = [one / other for one, other in zip(times["torch"], times["jitgemm"])]
            print(f"{label:18}{rates['torch']:12.1f}{rates['jitgemm']:12.1f}{'':32}{statistics.median(ratios):8.3f}"
                  f"{spread(ratios):8.1%}", flush=True)
            figures.append({"case": label, "tokens_per_second": rates, "ratio": statistics.median(ratios),
                            "spread": spread(ratios), "milliseconds": times})
            del steps
        torch.cuda.synchronize()
        tuned = [result for result in jitgemm.cache.tuning_results() if str(result.problem) not in before]
        counters = jitgemm.default_context().counters
        print(f"tuned: {len(tuned)} problems, {counters.compiles} kernels compiled; all of it took "
              f"{time.perf_counter() - begin:.0f} s")
        for result in tuned:
            print(f"  {result.problem}: {result.config}, {result.median_us:.1f} us")
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump({"config": name, "parameters": parameters, "device": jitgemm.default_context().device.name,
                           "torch": torch.__version__, "errors": errors, "figures": figures,
                           "tuned": [result.json() for result in tuned]}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
