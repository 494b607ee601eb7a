"""Shapes as people write them: tuples, texts, Problems, or the path of a file with `m n k` lines."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from pathlib import Path

from jitgemm._core import Problem

Shapes = Iterable["Problem | str | tuple[int, int, int]"] | str | os.PathLike

LAYOUTS = {"n": "row_major", "t": "column_major"}


def sizes_of_file(path: str | os.PathLike) -> list[tuple[int, int, int]]:
    """Of each line that is neither empty nor a comment. ValueError names the line that is not three integers."""
    sizes = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or not all(word.isdigit() for word in words):
            raise ValueError(f"{os.fspath(path)}:{number}: {line!r} is not `m n k`; write three integers a line")
        m, n, k = map(int, words)
        sizes.append((m, n, k))
    return sizes


def size_of(shape: object) -> tuple[int, int, int]:
    """ValueError for what is not three integers."""
    try:
        m, n, k = map(operator.index, shape)
    except (TypeError, ValueError):
        raise ValueError(f"{shape!r} is no shape; pass (m, n, k), three integers") from None
    return m, n, k


def layout_fields(layout: str) -> dict[str, str]:
    """Of "nn", "nt", "tn" or "tt": how A and B are stored; n by rows, t by columns."""
    if not isinstance(layout, str) or len(layout) != 2 or any(letter not in LAYOUTS for letter in layout):
        raise ValueError(f"layout is {layout!r}; choose one of nn, nt, tn, tt")
    return {"layout_a": LAYOUTS[layout[0]], "layout_b": LAYOUTS[layout[1]]}


def problems_of(shapes: Shapes, dtype: str, layout: str, fields: dict[str, object]) -> list[Problem]:
    """A Problem for each shape. What is a Problem or a text already keeps its own fields."""
    if isinstance(shapes, (str, os.PathLike)):
        shapes = sizes_of_file(shapes)
    problems = []
    for shape in shapes:
        if isinstance(shape, Problem):
            problems.append(shape)
        elif isinstance(shape, str):
            problems.append(Problem(shape))
        else:
            problems.append(Problem(*size_of(shape), a=dtype, **layout_fields(layout), **fields))
    return problems
