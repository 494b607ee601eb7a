"""Kernels compiled ahead."""

from __future__ import annotations

import os
from collections.abc import Callable

from jitgemm._core import Context, default_context, devices
from jitgemm._progress import steps
from jitgemm._shapes import Shapes, problems_of


def warm(shapes: Shapes, *, arch: str | None = None, dtype: str = "bf16", layout: str = "nn",
         device: str | None = None, cache_dir: str | os.PathLike | None = None,
         progress: bool | Callable[[int, int], None] | None = None, **fields: object) -> int:
    """Compiles into the cache on disk what matmul() would run for these shapes. Returns how many there were.

    shapes     (m, n, k) tuples, Problems or their texts; or the path of a file with `m n k` lines.
    arch       "sm_90a", say: compiles for it without a GPU.
    device     without arch: "cuda:N" or "cpu", the emulator. Default: the first GPU, else the emulator.
    dtype, layout, fields  of all tuples: Problem's. layout is "nn", "nt", "tn" or "tt"; t says stored by columns, as the
               weight of a Linear is ("nt").
    cache_dir  default: where the library keeps its kernels.
    progress   True for a bar, or a function of (done, total).

    ValueError for shapes that no kernel serves, RuntimeError without NVRTC (`pip install "jitgemm[nvrtc]"`).
    """
    problems = problems_of(shapes, dtype, layout, fields)
    if arch is not None:
        if device is not None:
            raise ValueError("arch compiles for no device; pass either it or device")
        context = Context("compile_only", architecture=arch, cache_dir=cache_dir)
    else:
        device = device or ("cuda:0" if devices() else "cpu")
        context = default_context(device) if cache_dir is None else Context(device, cache_dir=cache_dir)
    for problem in steps(problems, "compiling", progress):
        context.warm(problem)
    return len(problems)
