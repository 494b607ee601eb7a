"""Times of calls that CUDA graphs hold, without what a launch costs the host."""
from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import torch


def graph_of(arm: Callable[[int], object], calls: int, sets: int) -> torch.cuda.CUDAGraph:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    try:
        for i in range(calls):
            arm(i % sets)
    finally:
        graph.capture_end()
    return graph


def replayed(graph: torch.cuda.CUDAGraph) -> float:
    """Milliseconds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def timed(those: dict[str, Callable[[int], object]], sets: int, rounds: int) -> dict[str, list[float]]:
    """Microseconds of a call, in each round."""
    graphs = {}
    for name, arm in those.items():
        arm(0)  # a first call tunes; one that is captured takes the model's choice
        one = graph_of(arm, sets, sets)
        once = min(replayed(one) for _ in range(2)) / sets
        calls = sets * max(1, round(min(256, 4 / once) / sets))
        graphs[name] = graph_of(arm, calls, sets), calls
    times: dict[str, list[float]] = {name: [] for name in those}
    for count in range(rounds + 1):
        for name in random.sample(list(those), len(those)):
            graph, calls = graphs[name]
            milliseconds = replayed(graph)
            if count:
                times[name].append(milliseconds / calls * 1e3)
    return times


def spread(values: list[float]) -> float:
    ordered = sorted(values)
    return (ordered[int(0.8 * (len(ordered) - 1))] - ordered[int(0.2 * (len(ordered) - 1))]) / statistics.median(ordered)
