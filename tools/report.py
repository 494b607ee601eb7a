#!/usr/bin/env python3
"""Turns the CSV files of `jitgemm bench` into tables (Markdown) and plots (PNG).

  tools/report.py OUTDIR results/*.csv
  tools/report.py corpora results/*.csv --html OUT.html --png OUTDIR    (see --help there)
  tools/report.py seeds RUNDIR OUT.md                                   (and there)

The first writes OUTDIR/report.md, and for each CSV file a plot of the ratios and of the part of the floor by size; a file whose
shapes are all squares also gets TFLOP/s over the size. Only rows that were checked and timed on a GPU count.
"""

import argparse
import csv
import math
import re
import sys
from pathlib import Path

ARMS = ["model", "tuned", "best", "cublas", "cublaslt", "triton"]
LABELS = {
    "model": "jitgemm, model's choice",
    "tuned": "jitgemm, tuned",
    "best": "jitgemm, best measured",
    "cublas": "cuBLAS default",
    "cublaslt": "best cuBLASLt candidate",
    "triton": "Triton tutorial",
}
RATIOS = [("cublas", "model"), ("cublas", "tuned"), ("cublas", "best"), ("cublaslt", "tuned"), ("cublaslt", "best"),
          ("triton", "tuned")]
GROUPS = [
    ("all", lambda r: True),
    ("under 1 wave, K < 1024", lambda r: r["waves"] < 1 and r["k"] < 1024),
    ("under 1 wave, K >= 1024", lambda r: r["waves"] < 1 and r["k"] >= 1024),
    ("1 to 4 waves", lambda r: 1 <= r["waves"] < 4),
    ("4 waves and more", lambda r: r["waves"] >= 4),
]


def read(path):
    """The rows that count, sizes and times as numbers; a time that was not taken is None."""
    rows, failed = [], []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            if row.get("check") is None:
                sys.exit(f"report.py: error: {path} is no CSV file of `jitgemm bench`")
            for size in ("m", "n", "k"):
                row[size] = int(row[size])
            if row["check"] != "ok":
                failed.append(row)
                continue
            if row["device"] == "emulator":
                continue
            for name in ["waves", "floor_us"] + [f"{arm}_{what}" for arm in ARMS for what in ("us", "spread")]:
                row[name] = float(row[name]) if row.get(name) else None
            rows.append(row)
    return rows, failed


def quantile(values, part):
    return sorted(values)[round(part * (len(values) - 1))]


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def ratios(rows, peer, ours):
    return [r[f"{peer}_us"] / r[f"{ours}_us"] for r in rows if r[f"{peer}_us"] and r[f"{ours}_us"]]


def tflops(row, arm):
    return 2e-6 * row["m"] * row["n"] * row["k"] / row[f"{arm}_us"]


def table(head, lines):
    rule = ["---"] + ["--:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule] + lines) + "\n"


def ratio_table(rows):
    lines = []
    for group, holds in GROUPS:
        chosen = [r for r in rows if holds(r)]
        for peer, ours in RATIOS:
            values = ratios(chosen, peer, ours)
            if values:
                lines.append([group, f"{peer} / {ours}", str(len(values)), f"**{geomean(values):.3f}**"]
                             + [f"{quantile(values, part):.3f}" for part in (0.1, 0.5, 0.9)])
    return table(["shapes", "ratio", "count", "geomean", "p10", "p50", "p90"], lines) if lines else ""


def floor_table(rows):
    lines = []
    for arm in ARMS:
        for group, holds in GROUPS[:1]:
            values = [r["floor_us"] / r[f"{arm}_us"] for r in rows if holds(r) and r[f"{arm}_us"]]
            spreads = [r[f"{arm}_spread"] for r in rows if r[f"{arm}_us"]]
            if values:
                lines.append([LABELS[arm], f"{geomean(values):.3f}", f"{quantile(values, 0.1):.3f}",
                              f"{quantile(values, 0.9):.3f}", f"{100 * quantile(spreads, 0.5):.1f} %"])
    return table(["arm", "floor / time", "p10", "p90", "median spread"], lines) if lines else ""


def shape_table(rows):
    """Every shape, for files of a few."""
    arms = [arm for arm in ARMS if any(r[f"{arm}_us"] for r in rows)]
    lines = []
    for r in rows:
        cells = [f"{r['m']} x {r['n']} x {r['k']}"]
        for arm in arms:
            cells.append(f"{r[f'{arm}_us']:.2f} us, {tflops(r, arm):.0f}" if r[f"{arm}_us"] else "")
        both = r["cublas_us"] and r["best_us"]
        cells.append(f"{r['cublas_us'] / r['best_us']:.3f}" if both else "")
        cells.append(r["best_config"] or r["tuned_config"] or r["model_config"])
        lines.append(cells)
    text = table(["shape"] + [f"{arm} (TFLOP/s)" for arm in arms] + ["cublas / best", "best configuration"], lines)
    for r in rows:
        for arm in filter(None, (r.get("pinned") or "").split(";")):
            us, spread, config = arm.split(maxsplit=2)
            text += f"\n- {r['m']} x {r['n']} x {r['k']}: {float(us):.2f} us (spread {100 * float(spread):.1f} %) `{config}`"
    return text + "\n"


def pyplot():
    try:
        import matplotlib
    except ImportError:
        sys.exit("report.py: error: matplotlib is missing: install python3-matplotlib, or add --no-plots")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"axes.grid": True, "grid.alpha": 0.3, "font.size": 9, "figure.dpi": 130})
    return plt


def plot_ratios(plt, name, rows, path):
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    work = lambda r: 2.0 * r["m"] * r["n"] * r["k"]
    for peer, ours, marker in (("cublas", "tuned", "o"), ("cublaslt", "tuned", "x")):
        points = [(work(r), r[f"{peer}_us"] / r[f"{ours}_us"]) for r in rows if r[f"{peer}_us"] and r[f"{ours}_us"]]
        if points:
            left.scatter(*zip(*points), s=14, marker=marker, alpha=0.7, label=f"{LABELS[peer]} / {LABELS[ours]}")
    left.axhline(1, color="black", linewidth=0.8)
    left.set(xscale="log", xlabel="2 m n k", ylabel="time ratio; above 1 jitgemm is faster", title=name)
    for arm, marker in (("tuned", "o"), ("model", "."), ("cublas", "x")):
        points = [(work(r), r["floor_us"] / r[f"{arm}_us"]) for r in rows if r[f"{arm}_us"]]
        if points:
            right.scatter(*zip(*points), s=14, marker=marker, alpha=0.7, label=LABELS[arm])
    right.set(xscale="log", xlabel="2 m n k", ylabel="floor / time", ylim=(0, None), title="part of the roofline floor")
    for axes in (left, right):
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def plot_waves(plt, name, rows, path):
    groups = [(group, [r for r in rows if holds(r)]) for group, holds in GROUPS]
    data = [(group, ratios(chosen, "cublas", "tuned")) for group, chosen in groups]
    data = [(group, values) for group, values in data if values]
    if not data:
        return False
    figure, axes = plt.subplots(figsize=(7, 4))
    axes.boxplot([values for _, values in data], whis=(10, 90), showfliers=False)
    axes.set_xticks(range(1, len(data) + 1), [f"{group}\n({len(values)})" for group, values in data], fontsize=7)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(ylabel="cuBLAS default / jitgemm tuned", title=f"{name}: by waves of 128 x 256 tiles; whiskers p10, p90")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return True


def plot_squares(plt, name, rows, path):
    rows = sorted(rows, key=lambda r: r["m"])
    figure, axes = plt.subplots(figsize=(7, 4.2))
    for arm in ARMS:
        points = [(r["m"], tflops(r, arm)) for r in rows if r[f"{arm}_us"]]
        if points:
            axes.plot(*zip(*points), marker=".", label=LABELS[arm], linestyle="-" if arm in ("model", "tuned", "best") else "--")
    axes.set(xlabel="M = N = K", ylabel="TFLOP/s", title=f"{name}: {rows[0]['device']}", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def problem_kind(row):
    """The problem without its sizes and what follows from them."""
    return " ".join(w for w in row["problem"].split() if not re.match(r"(m|n|k|align_.|ld.)=", w))


def main():
    if sys.argv[1:2] == ["corpora"]:
        import report_corpora

        return report_corpora.main(sys.argv[2:])
    if sys.argv[1:2] == ["seeds"]:
        import report_seeds

        return report_seeds.main(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outdir", type=Path)
    parser.add_argument("csv", type=Path, nargs="+")
    parser.add_argument("--no-plots", action="store_true", help="tables only; needs no matplotlib")
    arguments = parser.parse_args()
    arguments.outdir.mkdir(parents=True, exist_ok=True)
    plt = None if arguments.no_plots else pyplot()

    parts = ["# Benchmark report\n\nRatios are times, peer over ours: above 1 jitgemm is faster. "
             "floor = max(2 m n k / 800 TFLOP/s, bytes / 4.2 TB/s) + 2 us.\n"]
    for path in arguments.csv:
        rows, failed = read(path)
        name = path.stem
        parts.append(f"\n## {name}\n")
        for row in failed:
            parts.append(f"FAILED {row['problem']}: {row['check']}\n")
        if not rows:
            parts.append("Nothing was timed on a GPU.\n")
            continue
        devices = sorted({r["device"] for r in rows})
        kinds = sorted({problem_kind(r) for r in rows})
        parts.append(f"{len(rows)} shapes, {'; '.join(kinds)}, on {', '.join(devices)}.\n")
        parts += [ratio_table(rows), floor_table(rows)]
        if len(rows) <= 50:
            parts.append(shape_table(rows))
        if not plt:
            continue
        plots = [f"{name}.png"]
        plot_ratios(plt, name, rows, arguments.outdir / plots[0])
        if len(rows) > 20 and plot_waves(plt, name, rows, arguments.outdir / f"{name}_waves.png"):
            plots.append(f"{name}_waves.png")
        if len(rows) > 1 and all(r["m"] == r["n"] == r["k"] for r in rows):
            plots.append(f"{name}_squares.png")
            plot_squares(plt, name, rows, arguments.outdir / plots[-1])
        parts += [f"![{name}]({plot})\n" for plot in plots]
    report = arguments.outdir / "report.md"
    report.write_text("\n".join(parts))
    print(report)


if __name__ == "__main__":
    main()
