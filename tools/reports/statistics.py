"""What reports say about many shapes."""

import math
import random
from dataclasses import dataclass

from reports.records import CONFIG_FIELDS, WAVE_CLASSES, Shape, geomean

RESAMPLES = 4000


@dataclass
class Summary:
    """Of one ratio over the shapes of a corpus. p5 and the like are measured shapes, none interpolated."""
    count: int
    geomean: float
    low: float  # of the 95 % interval; None of a single shape
    high: float
    p5: Shape
    median: Shape
    worst: Shape
    p95: Shape
    best: Shape
    ahead: int  # shapes where jitgemm is at least as fast


def bootstrap(values):
    """The 95 % interval of the geometric mean: percentiles over resamples, the same ones at each run."""
    if len(values) < 2:
        return None, None
    logs, draw = [math.log(x) for x in values], random.Random(1)
    means = sorted(sum(draw.choices(logs, k=len(logs))) / len(logs) for _ in range(RESAMPLES))
    return tuple(math.exp(means[round(part * (RESAMPLES - 1))]) for part in (0.025, 0.975))


def summarise(shapes, ratio):
    """None if no shape has the ratio."""
    ranked = sorted((s for s in shapes if ratio in s.speedup), key=lambda s: s.speedup[ratio])
    if not ranked:
        return None
    values = [s.speedup[ratio] for s in ranked]
    at = lambda part: ranked[round(part * (len(ranked) - 1))]
    return Summary(len(ranked), geomean(values), *bootstrap(values), at(0.05), at(0.5), ranked[0], at(0.95),
                   ranked[-1], sum(x >= 1 for x in values))


def choices(shapes):
    """Of each field of the configurations: (value, shapes that chose it, their mean speed-up over cuBLAS or None)."""
    groups = {}
    for field in CONFIG_FIELDS:
        members = {}
        for shape in shapes:
            members.setdefault(shape.config[field], []).append(shape)
        rows = []
        for value, chosen in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])):
            speedups = [s.speedup["cublas"] for s in chosen if "cublas" in s.speedup]
            rows.append((value, len(chosen), geomean(speedups) if speedups else None))
        groups[field] = rows
    return groups


def by_waves(shapes, ratios):
    """Of each class that has shapes: (its name, how many, the geometric mean of each ratio or None)."""
    rows = []
    for index, (name, _) in enumerate(WAVE_CLASSES):
        members = [s for s in shapes if s.wave_class == index]
        values = [[s.speedup[ratio] for s in members if ratio in s.speedup] for ratio in ratios]
        if members:
            rows.append((name, len(members), [geomean(x) if x else None for x in values]))
    return rows
