"""Our ratios beside those that others publish of the same shapes, as Markdown.

  tools/report.py published cuda_l2.csv [--published tools/results/cuda_l2_published.csv]

The first file is of `jitgemm bench`, the second says in its first lines where it is from. Ours are times of kernels on the GPU
of the first file; theirs are of whole calls, on another GPU. So the peers' times differ too, and a ratio says how far a side is
ahead where it was measured, no more. Above 1 it is faster than the peer.
"""

import argparse
import sys
from pathlib import Path

from reports.markdown import table
from reports.records import BadInput, geomean, number, read_corpora_of, rows_of

PUBLISHED = Path(__file__).resolve().parent.parent / "results/cuda_l2_published.csv"
SIZES = ["m", "n", "k"]
SPLIT = 1e11  # operations
BEHIND = 0.95
CLASSES = [("all", lambda flop: True), ("below 10^11 operations", lambda flop: flop < SPLIT),
           ("10^11 and more", lambda flop: flop >= SPLIT)]


def read_published(path):
    """(m, n, k) -> column -> ratio"""
    rows = rows_of(path, SIZES, comments=True)
    columns = [column for column in rows[0] if column not in SIZES]
    found = {}
    for line, row in enumerate(rows, 1):
        sizes = [number(path, f"{line} of its table", row, column) for column in SIZES]
        ratios = {column: number(path, f"{line} of its table", row, column) for column in columns}
        if None in sizes or None in ratios.values():
            raise BadInput(f"{path}, row {line} of its table lacks a number: give the file as it was committed")
        found[tuple(map(int, sizes))] = ratios
    return found


def cells(values):
    """How many, their geometric mean, and how many are behind."""
    if not values:
        return ["0", "", ""]
    return [str(len(values)), f"{geomean(values):.3f}", str(sum(value < BEHIND for value in values))]


def lines_of(corpora, published):
    """Of each class ours by each protocol, then theirs of the shapes that ours has."""
    names = list(dict.fromkeys((s.m, s.n, s.k) for corpus in corpora for s in corpus.shapes))
    columns = next(iter(published.values()))
    lines = []
    for title, holds in CLASSES:
        whose = []
        for corpus in corpora:
            for ratio, peer in (("cublas", corpus.default_peer), ("cublaslt", "best of 16 of cuBLASLt")):
                values = [s.speedup[ratio] for s in corpus.with_speedup(ratio) if holds(s.flop)]
                whose.append([f"ours, {corpus.protocol}", peer, *cells(values)])
        for column in columns:
            mode, _, peer = column.partition("_")
            values = [published[name][column] for name in names if holds(2 * name[0] * name[1] * name[2])]
            whose.append([f"published, {mode}", peer.replace("_", ", "), *cells(values)])
        lines += [[title if i == 0 else "", *line] for i, line in enumerate(whose)]
    return lines


def main(argv):
    parser = argparse.ArgumentParser(prog="report.py published", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, help="a file of `jitgemm bench`")
    parser.add_argument("--published", type=Path, default=PUBLISHED, help="m,n,k and a column for each mode and peer")
    arguments = parser.parse_args(argv)
    try:
        corpora = read_corpora_of(arguments.csv)
        published = read_published(arguments.published)
        strange = [s.name for corpus in corpora for s in corpus.shapes if (s.m, s.n, s.k) not in published or s.batch != 1]
        if strange:
            raise BadInput(f"{arguments.published} has no {strange[0]}: measure shapes that are published")
    except BadInput as error:
        sys.exit(f"report.py: error: {error}")
    kinds = ", ".join(sorted({kind for corpus in corpora for kind in corpus.kinds}))
    devices = ", ".join(sorted({device for corpus in corpora for device in corpus.devices}))
    head = ["operations", "whose", "over", "shapes", "mean", f"below {BEHIND}"]
    failed = len({problem for corpus in corpora for problem, _ in corpus.failed})
    print(f"Ours: {devices}, {kinds}" + (f"; {failed} shapes failed and are left out" if failed else "")
          + f". Published: {arguments.published.name}. Means are geometric.\n")
    print(table(head, lines_of(corpora, published), (0, 1, 2)), end="")
