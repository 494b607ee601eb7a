"""Ours beside the framework's own matrix product, on one's own shapes."""

from __future__ import annotations

import csv
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from jitgemm._core import Matmul, default_context
from jitgemm._progress import steps
from jitgemm._shapes import Shapes, layout_fields, size_of, sizes_of_file

TORCH_TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "tf32": "float32", "f64": "float64"}
NUMPY_TYPES = {"f16": "float16", "f32": "float32", "f64": "float64"}


@dataclass
class BenchRow:
    """One shape. Times are medians in microseconds; spread is (p80 - p20) / median of ours over the peer's."""

    m: int
    n: int
    k: int
    dtype: str
    ours_us: float
    peer_us: float
    speedup: float
    spread: float
    error: float  # of ours: the norm of the difference from float64's result over the result's norm, in sampled rows
    config: str


class BenchTable(list):
    """Rows of bench(). Prints as a table, and draws itself."""

    def __init__(self, rows: Sequence[BenchRow], peer: str, device: str) -> None:
        super().__init__(rows)
        self.peer = peer
        self.device = device

    @property
    def speedup(self) -> float:
        """The geometric mean over the shapes."""
        return statistics.geometric_mean(row.speedup for row in self)

    def __str__(self) -> str:
        lines = [f"{self.device}: jitgemm beside {self.peer}",
                 f"{'m':>7} {'n':>7} {'k':>7}  {'type':5} {'ours us':>10} {'peer us':>10} {'speed-up':>9} {'spread':>7}"]
        for row in self:
            lines.append(f"{row.m:7} {row.n:7} {row.k:7}  {row.dtype:5} {row.ours_us:10.2f} {row.peer_us:10.2f} "
                         f"{row.speedup:9.3f} {row.spread:7.1%}")
        lines.append(f"geometric mean of {len(self)}: {self.speedup:.3f}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        names = [field.name for field in fields(BenchRow)]
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join("<tr>" + "".join(f"<td>{value:.4g}</td>" if isinstance(value, float) else f"<td>{value}</td>"
                                        for value in asdict(row).values()) + "</tr>" for row in self)
        return f"<table><tr>{head}</tr>{body}</table>"

    def to_csv(self, path: str | os.PathLike) -> None:
        """Writes a line a shape."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(BenchRow)])
            writer.writeheader()
            writer.writerows(asdict(row) for row in self)

    def plot(self, path: str | os.PathLike | None = None) -> Any:
        """Draws the speed-ups, and writes the picture to `path` if one is given. Returns matplotlib's figure."""
        try:
            import matplotlib
        except ImportError:
            raise ImportError('plot() needs matplotlib: pip install "jitgemm[plot]"') from None
        if path is not None:
            matplotlib.use("Agg", force=False)
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(max(4.0, 1.5 + 0.45 * len(self)), 4), layout="constrained")
        axes.bar(range(len(self)), [row.speedup for row in self],
                 color=["tab:blue" if row.speedup >= 1 else "tab:orange" for row in self])
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(range(len(self)), [f"{row.m}×{row.n}×{row.k}" for row in self], rotation=60, ha="right",
                        fontsize=8)
        axes.set_ylabel(f"speed-up over {self.peer}")
        axes.set_title(f"{self.device}, {self[0].dtype if self else ''}: {self.speedup:.3f} in the mean")
        if path is not None:
            figure.savefig(path, dpi=120)
            pyplot.close(figure)
        return figure


def bench(shapes: Shapes, *, dtype: str | None = None, layout: str = "nn", device: str | None = None, tune: bool = True,
          seconds: float = 0.3, progress: bool | Callable[[int, int], None] | None = None, seed: int = 0) -> BenchTable:
    """Times a @ b of each shape by jitgemm and by the framework that it is called from.

    shapes    (m, n, k) tuples, or the path of a file with `m n k` lines.
    dtype     "bf16", "f16", "f32", "tf32" or "f64". Default: "bf16" on a GPU, "f32" on the CPU.
    layout    "nn", "nt", "tn" or "tt": how A and B are stored, t by columns. A Linear is "nt".
    device    "cuda:N" (torch and its cuBLAS) or "cpu" (NumPy, of `jitgemm[bench]`, and the emulator, which says
              nothing about a GPU's speed). Default: the first GPU, where torch sees one, else "cpu".
    tune      measure candidates first, and keep the best on disk; else the choice is what is known already.
    seconds   of timing a shape.
    progress  True for a bar, or a function of (done, total).

    On a GPU each arm is a CUDA graph of launches back to back over inputs that rotate through more than the L2 cache,
    the arms take turns in random order, and the first round does not count. Results are checked against float64 first;
    RuntimeError if they are wrong.
    """
    sizes = sizes_of_file(shapes) if isinstance(shapes, (str, os.PathLike)) else list(map(size_of, shapes))
    if not sizes:
        raise ValueError("there is no shape to time; pass (m, n, k) tuples")
    if not 0 < seconds < math.inf:
        raise ValueError(f"seconds is {seconds}; pass how long to time a shape, 0.3 say")
    layout_fields(layout)  # refuses others
    if device is None:
        device = "cuda:0" if _torch_with_cuda() is not None else "cpu"
    if dtype is None:
        dtype = "f32" if device == "cpu" else "bf16"
    draw = random.Random(seed)
    if device == "cpu":
        arms, peer, name = _NumpyArms(dtype, layout, seed), "NumPy", "the emulator"
    else:
        arms = _TorchArms(dtype, layout, device, seed)
        peer, name = "torch", default_context(device).device.name
    rows = []
    for m, n, k in steps(sizes, "timing", progress):
        arms.prepare(m, n, k, tune)
        error = arms.error()
        limit = {"f64": 1e-13, "f32": 1e-5}.get(dtype, 1e-2)
        if not error <= limit:
            raise RuntimeError(f"{m}x{n}x{k} {dtype}: the result differs from float64's by {error:.3g} of its norm; "
                               "please report this")
        ours, theirs = _times([arms.ours(), arms.peer()], seconds, draw)
        ratios = sorted(b / a for a, b in zip(ours, theirs))
        ratio = statistics.median(ratios)
        p20, p80 = ratios[int(0.2 * (len(ratios) - 1))], ratios[math.ceil(0.8 * (len(ratios) - 1))]
        rows.append(BenchRow(m, n, k, dtype, statistics.median(ours), statistics.median(theirs), ratio,
                             (p80 - p20) / ratio, error, arms.config()))
        arms.release()
    return BenchTable(rows, peer, name)


def _torch_with_cuda() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _times(arms: list[Callable[[], float]], seconds: float, draw: random.Random) -> list[list[float]]:
    """Microseconds of each arm in each round, arms in random order; at least five rounds."""
    times: list[list[float]] = [[] for _ in arms]
    begin = time.perf_counter()
    count = -1  # the first round warms up
    while count < 5 or time.perf_counter() - begin < seconds:
        for i in draw.sample(range(len(arms)), len(arms)):
            microseconds = arms[i]()
            if count >= 0:
                times[i].append(microseconds)
        count += 1
    return times


class _TorchArms:
    def __init__(self, dtype: str, layout: str, device: str, seed: int) -> None:
        import torch

        if dtype not in TORCH_TYPES:
            raise ValueError(f'dtype is "{dtype}"; torch multiplies {", ".join(TORCH_TYPES)}')
        self.torch = torch
        self.device = torch.device(device)
        self.type = getattr(torch, TORCH_TYPES[dtype])
        self.precision = "tf32" if dtype == "tf32" else "ieee" if dtype == "f32" else None
        self.layout = layout
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.l2_bytes = torch.cuda.get_device_properties(self.device).L2_cache_size

    def _matrix(self, rows: int, columns: int, letter: str) -> Any:
        shape = (rows, columns) if letter == "n" else (columns, rows)
        matrix = self.torch.randn(shape, device=self.device, generator=self.generator, dtype=self.torch.float32)
        matrix = matrix.to(self.type)
        return matrix if letter == "n" else matrix.T

    def prepare(self, m: int, n: int, k: int, tune: bool) -> None:
        torch = self.torch
        size = torch.empty((), dtype=self.type).element_size()
        self.sets = max(2, min(64, math.ceil(3 * self.l2_bytes / ((m * k + k * n + m * n) * size))))
        self.a = [self._matrix(m, k, self.layout[0]) for _ in range(self.sets)]
        self.b = [self._matrix(k, n, self.layout[1]) for _ in range(self.sets)]
        self.d = [torch.full((m, n), math.nan, device=self.device, dtype=self.type) for _ in range(self.sets)]
        with torch.no_grad():
            self.product = Matmul(self.a[0], self.b[0], out=self.d[0], precision=self.precision)
            if tune:
                self.product.tune()
            self.product(self.a[0], self.b[0], out=self.d[0])

    def error(self) -> float:
        torch = self.torch
        rows = torch.randperm(self.a[0].shape[0], device=self.device)[:256]
        expected = self.a[0][rows].double() @ self.b[0].double()
        difference = self.d[0][rows].double() - expected
        return float(difference.norm() / expected.norm()) if expected.numel() else 0.0

    def config(self) -> str:
        return self.product.plan().config

    def _graph(self, launch: Callable[[int], None]) -> Callable[[], float]:
        torch = self.torch
        with torch.no_grad(), torch.cuda.device(self.device):
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                for i in range(self.sets):
                    launch(i)
                begin.record()
                for i in range(self.sets):
                    launch(i)
                end.record()
                side.synchronize()
                once = max(1e-3, begin.elapsed_time(end) / self.sets)
                launches = self.sets * max(1, math.ceil(2.5 / once / self.sets))
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=side):
                    for i in range(launches):
                        launch(i % self.sets)

        def replay() -> float:
            with torch.cuda.stream(side):
                begin.record()
                graph.replay()
                end.record()
                side.synchronize()
            return begin.elapsed_time(end) * 1000 / launches

        return replay

    def ours(self) -> Callable[[], float]:
        return self._graph(lambda i: self.product(self.a[i], self.b[i], out=self.d[i]))

    def peer(self) -> Callable[[], float]:
        torch = self.torch
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
        try:
            return self._graph(lambda i: torch.mm(self.a[i], self.b[i], out=self.d[i]))
        finally:
            torch.set_float32_matmul_precision(before)

    def release(self) -> None:
        del self.a, self.b, self.d, self.product


class _NumpyArms:
    def __init__(self, dtype: str, layout: str, seed: int) -> None:
        try:
            import numpy
        except ImportError:
            raise ImportError('bench() on the CPU needs NumPy: pip install "jitgemm[bench]"') from None

        if dtype not in NUMPY_TYPES:
            raise ValueError(f'dtype is "{dtype}"; NumPy multiplies {", ".join(NUMPY_TYPES)}: bfloat16 needs a GPU here')
        self.numpy = numpy
        self.type = NUMPY_TYPES[dtype]
        self.layout = layout
        self.random = numpy.random.default_rng(seed)

    def prepare(self, m: int, n: int, k: int, tune: bool) -> None:
        def matrix(rows: int, columns: int, letter: str) -> Any:
            shape = (rows, columns) if letter == "n" else (columns, rows)
            made = self.random.standard_normal(shape).astype(self.type)
            return made if letter == "n" else made.T

        self.a, self.b = matrix(m, k, self.layout[0]), matrix(k, n, self.layout[1])
        self.d = self.numpy.full((m, n), math.nan, self.type)
        self.product = Matmul(self.a, self.b, out=self.d)
        if tune:
            self.product.tune()
        self.product(self.a, self.b, out=self.d)

    def error(self) -> float:
        expected = self.a.astype("float64") @ self.b.astype("float64")
        norm = self.numpy.linalg.norm
        return float(norm(self.d.astype("float64") - expected) / norm(expected)) if expected.size else 0.0

    def config(self) -> str:
        return self.product.plan().config

    @staticmethod
    def _timed(launch: Callable[[], object]) -> Callable[[], float]:
        def run() -> float:
            begin = time.perf_counter()
            launch()
            return (time.perf_counter() - begin) * 1e6

        return run

    def ours(self) -> Callable[[], float]:
        return self._timed(lambda: self.product(self.a, self.b, out=self.d))

    def peer(self) -> Callable[[], float]:
        return self._timed(lambda: self.numpy.matmul(self.a, self.b, out=self.d))

    def release(self) -> None:
        del self.a, self.b, self.d, self.product
