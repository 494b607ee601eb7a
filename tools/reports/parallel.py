"""What `jitgemm parallel bench` has measured, as Markdown.

  tools/report.py parallel CSV > parallel.md
"""

import argparse
import sys
from pathlib import Path

from reports.markdown import table
from reports.records import BadInput, geomean, rows_of

REQUIRED = ["exchange", "m", "n", "k", "ranks", "device", "nccl", "cublas_nccl_us", "ours_nccl_us", "ours_us", "ours_alone_us",
            "over_cublas_nccl", "over_best_in_turn", "hidden", "overlapped", "one_shot", "check"]
TOKENS = [("up to 128 tokens", 0, 128), ("129 to 2047", 129, 2047), ("2048 and more", 2048, 1 << 62)]


def method(row):
    return "overlapped" if row["overlapped"] == "yes" else "one shot" if row["one_shot"] == "yes" else "NCCL in turn"


def classes(rows):
    """(exchange, tokens, the rows of both), without empty ones."""
    for exchange in dict.fromkeys(row["exchange"] for row in rows):
        for name, least, most in TOKENS:
            of_class = [row for row in rows if row["exchange"] == exchange and least <= int(row["m"]) <= most]
            if of_class:
                yield exchange, name, of_class


def summary_line(exchange, tokens, rows):
    over = [float(row["over_cublas_nccl"]) for row in rows]
    best = [float(row["over_best_in_turn"]) for row in rows]
    exposed = sum(float(row["ours_us"]) - float(row["ours_alone_us"]) for row in rows)
    in_turn = sum(float(row["ours_nccl_us"]) - float(row["ours_alone_us"]) for row in rows)
    hidden = f"{1 - exposed / in_turn:.2f}" if in_turn > 0 else "-"
    return [exchange, tokens, str(len(rows)), f"**{geomean(over):.3f}**", f"{min(over):.3f}", f"{geomean(best):.3f}",
            f"{min(best):.3f}", hidden]


def shape_line(row):
    return [row["exchange"], row["m"], row["n"], row["k"], row["cublas_nccl_us"], row["ours_nccl_us"], row["ours_us"],
            row["ours_alone_us"], f"{float(row['over_cublas_nccl']):.3f}", method(row)]


def page(rows):
    first = rows[0]
    lines = ["# Products across GPUs", "",
             f"{first['ranks']} x {first['device']}, NCCL {first['nccl']} without NVLink multicast, bf16, by `jitgemm parallel "
             "bench`: a CUDA graph an arm, cold L2, ranks that meet before each sample, arms in random turns, the slowest rank, "
             "medians. n and k are those of the whole layer. A ratio is the other's time over ours. Hidden is the share of all "
             "the communication's time that is not exposed.", "",
             table(["exchange", "tokens", "shapes", "over cuBLAS + NCCL", "worst", "over the better in turn", "worst", "hidden"],
                   [summary_line(*of_class) for of_class in classes(rows)], text=(0, 1)),
             "Microseconds:", "",
             table(["exchange", "m", "n", "k", "cuBLAS + NCCL", "ours + NCCL", "ours", "the product alone", "ratio", "by"],
                   [shape_line(row) for row in rows], text=(0, 9))]
    return "\n".join(lines).rstrip("\n") + "\n"


def main(argv):
    parser = argparse.ArgumentParser(prog="report.py parallel", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, help="a file of `jitgemm parallel bench`, of all its arms")
    path = parser.parse_args(argv).csv
    try:
        rows = rows_of(path, REQUIRED)
        wrong = [row for row in rows if row["check"] != "ok" or not all(row[name] for name in REQUIRED if name != "hidden")]
        if wrong or not rows:
            raise BadInput(f"{path}: {len(wrong) or 'no'} shapes of {len(rows)} have no right results of all arms; measure them again")
    except BadInput as error:
        sys.exit(f"report.py: error: {error}")
    print(page(rows), end="")
