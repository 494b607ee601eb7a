"""What the examples across GPUs share: each rank is a process that torchrun starts, with a GPU of its own."""
from __future__ import annotations

import os
import random
import statistics
import sys
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist

import jitgemm


def slowest(value: float) -> float:
    """Of all ranks."""
    all_values = torch.tensor([value], device="cuda")
    dist.all_reduce(all_values, op=dist.ReduceOp.MAX)
    return float(all_values)


def timed(arms: Mapping[str, Callable[[], object]], rounds: int, before: Callable[[], None] | None = None,
          behind: Callable[[], None] | None = None) -> dict[str, float]:
    """Microseconds of one call of each, medians of the slowest rank's; in random turns, the same on all ranks, each behind a
    meeting of the devices. `before` the hosts meet, and `behind` that, something may be enqueued that is not timed."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    met = torch.zeros(1, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in arms}
    for count in range(rounds + 3):
        for name in random.sample(list(arms), len(arms)):
            if before:
                before()
            dist.barrier()
            torch.cuda.synchronize()
            if behind:
                behind()
            dist.all_reduce(met)  # hosts leave the barrier, and devices what is `behind` it, at different times
            begin.record()
            arms[name]()
            end.record()
            end.synchronize()
            us = slowest(begin.elapsed_time(end) * 1e3)
            if count >= 3:
                times[name].append(us)
    return {name: statistics.median(values) for name, values in times.items()}


def main(script: str, run: Callable[[int, int], bool]) -> int:
    """Calls `run` with the rank and how many there are, and returns the exit status: 0 if it says that all was right."""
    gpus = torch.cuda.device_count()
    if gpus < 2:
        print(f"{script}: there {'is 1 GPU' if gpus == 1 else 'are no GPUs'}, and ranks take one each: 2 at least",
              file=sys.stderr)
        return 1
    if "LOCAL_RANK" not in os.environ:
        print(f"{script}: start it by torchrun, as --help says, which makes a process of each rank", file=sys.stderr)
        return 1
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        print(f"{ranks} of {torch.cuda.get_device_name()}, torch {torch.__version__}, jitgemm {jitgemm.__version__}")
    right = run(rank, ranks)
    dist.destroy_process_group()
    return int(not right)
