"""Progress bars, by tqdm where there is one."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class Bar:
    """A function of (done, total) that draws how far the work is."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._tqdm = None
        self._found = importlib.util.find_spec("tqdm") is not None

    def __call__(self, done: int, total: int) -> None:
        if not self._found:
            print(f"\r{self._what} {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)
            return
        if self._tqdm is None:
            from tqdm.auto import tqdm

            self._tqdm = tqdm(total=total, desc=self._what)
        self._tqdm.total = total
        self._tqdm.update(done - self._tqdm.n)
        if done == total:
            self._tqdm.close()
            self._tqdm = None


def steps(items: Iterable[T], what: str, progress: bool | Callable[[int, int], None] | None) -> Iterator[T]:
    """The items, and after each of them a call of `progress`, True for a bar."""
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise TypeError("progress is neither a bool nor a function of (done, total)")
    report = Bar(what) if progress is True else progress or None
    listed = list(items)
    for done, item in enumerate(listed):
        yield item
        if report is not None:
            report(done + 1, len(listed))
