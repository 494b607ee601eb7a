"""What a machine has learned - tuning results, and kernels of GPUs - as one file that travels.

OSError for a file that is not there, cannot be read or is no wisdom; then nothing has been changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from jitgemm import _core
from jitgemm._core import Wisdom, WisdomDiff, WisdomImport, WisdomKernel

__all__ = ["Wisdom", "WisdomDiff", "WisdomImport", "WisdomKernel", "cached", "diff", "export", "import_", "merge", "read"]

Path = str | os.PathLike


def _directory(cache_dir: Path | None) -> str | None:
    return None if cache_dir is None else os.fsdecode(cache_dir)


def _listed(files: Path | Iterable[Path]) -> list[str]:
    return [os.fsdecode(file) for file in ([files] if isinstance(files, (str, bytes, os.PathLike)) else files)]


def cached(architecture: str = "", *, kernels: bool = True, cache_dir: Path | None = None) -> Wisdom:
    """What this machine knows; of one architecture, "sm_90a" say, where one is named."""
    return _core.cached_wisdom(architecture, kernels, _directory(cache_dir))


def export(file: Path, architecture: str = "", *, kernels: bool = True, cache_dir: Path | None = None) -> Wisdom:
    """Writes that to a file, whole or not at all. Returns what it has written."""
    return _core.export_wisdom(os.fsdecode(file), architecture, kernels, _directory(cache_dir))


def read(file: Path) -> Wisdom:
    """What a file has, checked."""
    return _core.read_wisdom(os.fsdecode(file))


def import_(files: Path | Iterable[Path], *, kernels: bool = False, cache_dir: Path | None = None) -> WisdomImport:
    """Adds what is new, or better, to what this machine knows.

    kernels  takes kernels too, from whom you trust: they are code that runs on your GPU.
    """
    return _core.import_wisdom(_listed(files), kernels, _directory(cache_dir))


def merge(file: Path, sources: Path | Iterable[Path]) -> Wisdom:
    """Makes one file of several; of two results of a problem the later counts. Returns what it has written."""
    return _core.merge_wisdom(os.fsdecode(file), _listed(sources))


def diff(a: Path, b: Path) -> WisdomDiff:
    """Compares two files."""
    return _core.diff_wisdom(os.fsdecode(a), os.fsdecode(b))
