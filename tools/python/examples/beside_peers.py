"""What scripts share that time ours beside peers."""
from __future__ import annotations

import sys
from collections.abc import Iterable

import torch

import jitgemm


def all_known(script: str, words: Iterable[str], known: Iterable[str]) -> bool:
    """Says on stderr which of the words is none of the known."""
    those = list(known)
    for word in words:
        if word not in those:
            print(f"{script}: {word} is none of {', '.join(those)}", file=sys.stderr)
            return False
    return True


def prepare_gpu(tuning_seconds: float) -> None:
    """A stream of our own, on which graphs are captured, too; and problems that are tuned where they are first called, for so long
    each, however many there are."""
    torch.cuda.set_stream(torch.cuda.Stream())
    jitgemm.set_default_context(jitgemm.Context("cuda", **tuned_for(tuning_seconds)))


def tuned_for(seconds: float) -> dict[str, float]:
    """A Context's settings."""
    return {"tuning_budget_seconds": seconds, "tuning_total_budget_seconds": 1e6}
