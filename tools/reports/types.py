"""The table of tools/types_table.sh, as Markdown, from its CSV files, one a class.

  tools/report.py types FILE... > types.md
"""

import argparse
import csv
import math
import re
import sys
from pathlib import Path

from reports.records import geomean, rep_rows


def number(text):
    return float(text) if text else None


def ratios(rows, peer):
    """(peer's time / ours, row), the worst first."""
    timed = [(number(r[f"{peer}_us"]), number(r["tuned_us"]), r) for r in rows]
    return sorted(((p / o, r) for p, o, r in timed if p and o), key=lambda pair: pair[0])


def mean(pairs):
    return geomean([ratio for ratio, _ in pairs])


def shape(row):
    return f"{row['m']} x {row['n']} x {row['k']}"


def kind(row):
    """Of a problem what is not its sizes."""
    return " ".join(w for w in row["problem"].split() if not re.match(r"(m|n|k|align_.|ld.)=", w))


def tera(row):
    """Operations a second of ours, in 1e12."""
    batch = re.search(r"batch=(\d+)", row["problem"])
    work = 2e-6 * math.prod(int(row[size]) for size in "mnk") * (int(batch[1]) if batch else 1)
    return work / number(row["tuned_us"])


def table_row(name, rows):
    good = [r for r in rows if r["check"] == "ok"]
    lt, default = ratios(good, "cublaslt"), ratios(good, "cublas")
    cells = [name, f"`{kind(rows[0])}`", f"{len(good)} of {len(rows)}"]
    cells.append(f"**{mean(lt):.3f}**" if lt else "-")
    cells.append(f"{mean(default):.3f}" if default else "-")
    cells.append(f"{lt[round(0.05 * (len(lt) - 1))][0]:.3f}" if lt else "-")
    cells.append(f"{shape(lt[0][1])} ({lt[0][0]:.3f})" if lt else "-")
    speeds = [tera(r) for r in good if number(r["tuned_us"])]
    return cells + [f"{max(speeds):.3g}" if speeds else "-"]


def notes(name, rows):
    """Why shapes or peers are missing, each reason once."""
    for column in ("check", "absent"):
        reasons = {}
        for r in rows:
            if r[column] not in ("", "ok"):
                reasons.setdefault(r[column], []).append(r)
        for reason, of in reasons.items():
            which = shape(of[0]) if len(of) == 1 else "all" if len(of) == len(rows) else f"{len(of)} shapes"
            yield f"- {name}, {which}: {reason}"
    first = sum(r["cublas_config"].startswith("first candidate") for r in rows)
    if first:
        yield f"- {name}: cublasGemmEx cannot compute this; its column has cuBLASLt's first candidate"


def main(argv):
    parser = argparse.ArgumentParser(prog="report.py types", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, nargs="+", help="a file of `jitgemm bench`; one that is not there is left out")
    files = parser.parse_args(argv).csv
    classes = [(path.stem, rep_rows(list(csv.DictReader(path.open(newline=""))))) for path in files if path.exists()]
    classes = [(name, rows) for name, rows in classes if rows]
    if not classes:
        sys.exit("report.py: error: no results in " + ", ".join(map(str, files)))
    lines = ["# Types, layouts and epilogues", "",
             f"{classes[0][1][0]['device']}. Times of the peer over ours (tuned): above 1 jitgemm is faster. Both columns of "
             "ratios are geometric means; p5 and the worst shape are of the best cuBLASLt candidate. TFLOP/s (of s8 TOP/s) are ours on the shape where they are "
             "highest.", "",
             "class | problem | shapes | cuBLASLt best / ours | cuBLAS default / ours | p5 | worst shape | ours, TFLOP/s",
             "--- | --- | --: | --: | --: | --: | --- | --:"]
    lines += [" | ".join(table_row(name, rows)) for name, rows in classes]
    remarks = [note for name, rows in classes for note in notes(name, rows)]
    print("\n".join(lines + ([""] + remarks if remarks else [])))
