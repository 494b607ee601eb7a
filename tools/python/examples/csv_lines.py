"""Lines of a CSV file as they come, so that a script that is cut short leaves those it had."""
from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence


class CsvLines:
    def __init__(self, path: str | None, header: Sequence[object]) -> None:
        """Nothing is written without a path."""
        self._file = open(path, "w", newline="") if path else None
        self.write([header])

    def write(self, lines: Iterable[Sequence[object]]) -> None:
        if self._file:
            csv.writer(self._file, lineterminator="\n").writerows(lines)
            self._file.flush()
