"""The table of tools/epilogues_table.sh, as Markdown, from its CSV files, one an epilogue of tools/examples/epilogues.

  tools/report.py epilogues FILE... [--short lines.csv] > epilogues.md

--short has a line for each shape with the times alone, as tools/results keeps them.
"""

import argparse
import csv
import re
import sys
from pathlib import Path

from reports.records import geomean, rep_rows

EPILOGUES = Path(__file__).resolve().parents[1] / "examples/epilogues"
BANDWIDTH = 4.2e6  # bytes a microsecond, as the floor of `jitgemm bench` has it
SHORT = ["epilogue", "m", "n", "k", "config", "us", "plain_us", "built_in_us", "cublaslt_us", "check"]


def matrix_bytes(text, m, n):
    """Of the matrices that the function reads or writes beside D."""
    width = n // 2 if "// pairs" in text else n
    sizes = {"f32": 4, "f16": 2, "bf16": 2}
    return sum(sizes[type_] * m * width for type_ in re.findall(r"// operand (?:in|out) \w+ matrix (\w+)", text))


def read(path):
    """Of each shape: the row, ours, plain and built in, None where there is none."""
    for row in rep_rows(list(csv.DictReader(path.open(newline="")))):
        ours = row["tuned_us"] or row["model_us"]
        others = {one.split()[0]: float(one.split()[1]) for one in row["others"].split("; ") if one}
        yield row, float(ours) if ours else None, others.get("plain"), others.get("built_in")


def cell(pairs, worst):
    """The mean of (ratio, shape), and the worst of them with its shape."""
    if not pairs:
        return "-"
    ratio, shape = worst(pairs)
    return f"**{geomean([x for x, _ in pairs]):.3f}** ({ratio:.3f}: {shape})"


def table_row(name, path, text):
    shapes, plain, moved, built_in, peer, wrong = 0, [], [], [], [], 0
    for row, ours, its_plain, its_built_in in read(path):
        shapes += 1
        if row["check"] != "ok":
            wrong += 1
            continue
        m, n = int(row["m"]), int(row["n"])
        shape = f"{m}x{n}x{row['k']}"
        if ours and its_plain:
            plain.append((ours / its_plain, shape))
            if extra := matrix_bytes(text, m, n):
                moved.append((ours / (its_plain + extra / BANDWIDTH), shape))
        if ours and its_built_in:
            built_in.append((ours / its_built_in, shape))
        if ours and row["cublaslt_us"]:
            peer.append((float(row["cublaslt_us"]) / ours, shape))
    return [name, f"{shapes - wrong} of {shapes}", cell(plain, max), cell(moved, max), cell(built_in, max), cell(peer, min)]


def short_rows(name, path):
    for row, ours, plain, built_in in read(path):
        times = [f"{x:.2f}" if x else "" for x in (ours, plain, built_in, float(row["cublaslt_us"] or 0))]
        config = row["tuned_config"] or row["model_config"]
        yield [name, row["m"], row["n"], row["k"], config, *times, "ok" if row["check"] == "ok" else "wrong"]


def main(argv):
    parser = argparse.ArgumentParser(prog="report.py epilogues", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, nargs="+", help="a file of `jitgemm bench --epilogue`, named as the epilogue")
    parser.add_argument("--short", type=Path, help="write the times of each shape to this file")
    arguments = parser.parse_args(argv)
    files = [path for path in arguments.csv if path.exists()]
    texts = {path: EPILOGUES / f"{path.stem}.txt" for path in files}
    for path, text in texts.items():
        if not text.exists():
            sys.exit(f"report.py: error: {path.name} is named as no epilogue of {EPILOGUES.name}/: {', '.join(sorted(p.stem for p in EPILOGUES.glob('*.txt')))}")
    if not files:
        sys.exit("report.py: error: no results in " + ", ".join(map(str, arguments.csv)))
    print("# Epilogues\n\nTime of the product with an epilogue over that of others by the same configuration: geometric means, and the "
          "worst. Plain is the product alone, its bytes are the matrices that the function moves at 4.2 TB/s; of cuBLASLt's best "
          "candidate the ratio is its time over ours.\n\nepilogue | shapes | over plain | over plain and its bytes | over built in | cuBLASLt over ours\n"
          "--- | --: | --: | --: | --: | --:")
    for path in files:
        print(" | ".join(table_row(path.stem, path, texts[path].read_text())))
    if arguments.short:
        with arguments.short.open("w", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(SHORT)
            for path in files:
                writer.writerows(short_rows(path.stem, path))
