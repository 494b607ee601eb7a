#!/usr/bin/env python3
"""What each feature of the Hopper kernels is worth, from `jitgemm bench --ablate N --csv FILE`.

  tools/ablation.py N FILE.csv... > ablation.csv

For each shape of a file, the fastest of the cost model's first N candidates against the fastest of its first N without a
feature, geometric means of cuBLAS default over each. The output is what `tools/report.py corpora --ablation` and `tools/report.py record` read.
"""

import argparse
import csv
import math
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True

from reports.records import ABLATION, BadInput, geomean, rep_rows, rows_of  # noqa: E402


def number(word, text, default):
    found = re.search(word + r"=(\S+)", text)
    return found.group(1) if found else default


def cluster(config):
    return [int(x) for x in number("cluster", config, "1x1x1").split("x")]


def tile(config):
    return [int(x) for x in config.split()[1].split("x")]


FEATURES = {  # the names of tools/jitgemm/bench/draw.cpp
    "multicast": lambda c: cluster(c)[0] * cluster(c)[1] > 1,
    "clusters above 2": lambda c: math.prod(cluster(c)) > 2,
    "cluster_k": lambda c: cluster(c)[2] > 1,
    "ping-pong": lambda c: "ping_pong" in c,
    "swapped operands": lambda c: "swap_ab=true" in c,
    "three consumers": lambda c: number("warps", c, "") == "12",
    "256 rows": lambda c: c.startswith("sm90") and tile(c)[0] == 256,
    "widths off 64": lambda c: tile(c)[1] % 64 != 0,
    "persistent": lambda c: "schedule=persistent" in c and "ping_pong" not in c,
    "split_k and stream_k": lambda c: "split_k" in c or "stream_k" in c,
    "packing": lambda c: "pack=" in c,
    "portable loop": lambda c: c.startswith("sm80"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, metavar="N", help="candidates of the cost model that count")
    parser.add_argument("csv", type=Path, nargs="+")
    arguments = parser.parse_args()
    first = arguments.first
    try:
        files = [(path.stem, rep_rows(rows_of(path, ["check", "cublas_us", "pinned"]))) for path in arguments.csv]
    except BadInput as error:
        sys.exit(f"ablation.py: error: {error}")
    writer = csv.writer(sys.stdout)
    writer.writerow(ABLATION)
    for corpus, all_rows in files:
        rows = [row for row in all_rows if row["check"] == "ok" and row["cublas_us"]]
        for feature, has in FEATURES.items():
            with_all, without, helped = [], [], 0
            for row in rows:
                timed = [entry.strip().split(" ", 2) for entry in row["pinned"].split(";")]
                timed = [(float(us), config) for us, _, config in timed if float(us) > 0]
                others = [us for us, config in timed if not has(config)][:first]
                if not others:
                    continue
                best, best_without = min(us for us, _ in timed[:first]), min(others)
                best = min(best, best_without)
                with_all.append(float(row["cublas_us"]) / best)
                without.append(float(row["cublas_us"]) / best_without)
                helped += best_without > 1.02 * best
            if with_all:
                gain = geomean(with_all) / geomean(without) - 1
                writer.writerow([feature, corpus, f"{geomean(with_all):.4f}", f"{geomean(without):.4f}", f"{gain:.4f}",
                                 len(with_all), f"{helped} shapes gain more than 2 %"])


if __name__ == "__main__":
    main()
