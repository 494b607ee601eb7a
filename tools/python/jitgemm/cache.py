"""Kernels and tuning results on disk, beside Contexts and processes that use them.

`directory` is a Context's `cache_dir`; None is where the library keeps things by default. OSError for what cannot be
read, written or removed.
"""

from __future__ import annotations

import operator
import os

from jitgemm._core import Cache, CachedKernel, CacheExport, TuningResult

__all__ = ["Cache", "CacheExport", "CachedKernel", "TuningResult", "clear", "directory", "export", "kernels", "prune",
           "tuning_results", "verify"]

Directory = str | os.PathLike | None


def _cache(directory: Directory) -> Cache:
    return Cache(None if directory is None else os.fsdecode(directory))


def directory() -> str:
    """The default one, as a full path; made if need be."""
    return Cache().directory


def kernels(directory: Directory = None) -> list[CachedKernel]:
    """All, last used first. Reads no more of each than its head: some faults only verify() sees."""
    return _cache(directory).kernels()


def verify(directory: Directory = None) -> list[CachedKernel]:
    """The same, each read whole and checked: see `fault`."""
    return _cache(directory).verify()


def prune(max_bytes: int | None = None, directory: Directory = None) -> int:
    """Removes damaged kernels, then the least recently used until `max_bytes` are left. Returns the bytes freed."""
    if max_bytes is None:
        return _cache(directory).prune(None)
    try:
        most = operator.index(max_bytes)
    except TypeError:
        most = -1
    if most < 0:
        raise ValueError(f"max_bytes is {max_bytes!r}; pass how many bytes may stay, 0 or more, or None")
    return _cache(directory).prune(min(most, 2**64 - 1))


def clear(directory: Directory = None) -> int:
    """Removes all kernels; tuning results stay. Returns the bytes freed."""
    return _cache(directory).clear()


def export(folder: str | os.PathLike, directory: Directory = None, *, binaries: bool = False) -> CacheExport:
    """Copies the whole kernels to a folder that JITGEMM_SYSTEM_CACHE_DIR may name.

    binaries  as cubins and sources instead, for a disassembler.
    """
    cache = _cache(directory)
    return cache.export_binaries(os.fsdecode(folder)) if binaries else cache.export_kernels(os.fsdecode(folder))


def tuning_results(directory: Directory = None) -> list[TuningResult]:
    """What has been measured to be the best, of all devices."""
    return _cache(directory).tuning_results()
