"""The numbers that the seed documents print beside ours, from the JSON files of the `jitgemm seed` commands.

  tools/report.py seeds RUNDIR OUT.md [--png DIR]

RUNDIR holds what was run, each file optional: checks.json, squares.json, squares_leaky_relu.json, singles.json, sweep.json,
and grouping.csv, a `jitgemm bench` of one shape with --config twice, group_m=8 and group_m=0. OUT.md is the page.
"""

import argparse
import csv
import json
import sys
from pathlib import Path

from reports.figures import style
from reports.markdown import table
from reports.records import geomean

EMPTY = "–"
PROVIDERS = {"cublas": "cuBLAS", "jitgemm": "jitgemm", "triton": "Triton"}

# Printed by the notebook: ms, and the speed-up over torch, with two_tiles. Its GPU has 82 or, so it says, 84 SMs.
SINGLES = {
    (1536, 1792, 6016): {"torch": 0.46, "1 an SM": (0.95, 0.49), "2 an SM": (0.80, 0.58), "tiles only": (0.75, 0.62)},
    (1536, 1792, 32000): {"torch": 2.18, "1 an SM": (4.65, 0.47), "2 an SM": (4.17, 0.52), "tiles only": (4.11, 0.53)},
}
# The notebook itself on an H200, Triton 3.6: speed-up over torch in the same run.
SINGLES_H200 = {
    (1536, 1792, 6016): {"1 an SM": 0.40, "2 an SM": 0.40, "tiles only": 0.74},
    (1536, 1792, 32000): {"1 an SM": 0.63, "2 an SM": 0.40, "tiles only": 0.66},
}
DEBUG = {  # printed by the notebook: grid, stream-K tiles, whole tiles, iterations a tile and in all
    (1536, 1792, 6016): (82, 86, 82, 188, 16168),
    (1536, 1792, 32000): (84, 84, 84, 1000, 84000),
}
SWEEP = [
    ("the notebook's run, interrupted at 40 of 1000", 0.960),
    ("a comment: A100, 32760 of 32768", 0.962),
    ("a comment: RTX 3090, 990 of 1000", 1.063),
    ("a comment: V100, 990 of 1000", 1.016),
    ("a comment: A100, 990 of 32768", 0.608),
    ("a comment: 100 of 32768", 0.901),
]
# The tutorial itself on an H200, Triton 3.6.
SQUARES_F16_H200 = {256: 0.89, 512: 0.87, 1024: 0.93, 1536: 0.72, 2048: 0.98, 2560: 0.93, 3072: 0.76, 3584: 0.97,
                    4096: 0.95}
SQUARES_E5M2_H200 = {1024: 225, 2048: 905, 4096: 1134}


def read(folder, name):
    """None if it was not run, or only on the emulator."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        return None if content["emulated"] else content
    except (ValueError, KeyError, TypeError):
        sys.exit(f"report.py: error: {path} is no JSON file of `jitgemm seed {name}`")


def number(value, digits=2):
    return EMPTY if value is None else f"{value:.{digits}f}"


def over(x, y):
    return x / y if x is not None and y else None


def ms(row, provider):
    return row[provider]["ms"] if provider in row else None


def speed(row, provider):
    return row[provider].get("tflops") if provider in row else None


def mean(values):
    return geomean(values) if values else None


def environment(runs):
    for run in runs:
        if run:
            device = run["device"]
            peers = ", ".join(filter(None, (run["cublas"], run["triton"])))
            return (f"Ours: {device['name']}, {device['sm_count']} SMs, clocks left alone, jitgemm {run['library']}; peers "
                    f"in the same run, arms alternating: {peers or 'none'}. ")
    return "Ours: not run yet. "


def checks_section(run):
    lines = []
    results = {result["type"]: result for result in run["results"]} if run else {}
    for type_name, limit in (("f16", "1e-2"), ("e5m2", "0.125")):
        checks = results.get(type_name, {}).get("checks", [])
        def cell(prefix):
            for check in checks:
                if check["check"].startswith(prefix):
                    outside = f", {check['outside']} elements beyond" if check["outside"] else ""
                    return f"{'match' if check['match'] else 'differ'}, {check['largest']:.2g}{outside}"
            return EMPTY
        what = "512^3, f16" if type_name == "f16" else "512^3, e5m2, B pre-transposed"
        lines.append([what, limit, cell("before"), cell("D in f16 and float64"), cell("D in f16 and cuBLAS")])
    return ("## The tutorial's checks\nThe largest difference. f16 values of this size are up to 0.03 off by rounding alone, so "
            "the product is compared before rounding, and after it with one rounding allowed for.\n\n"
            + table(["problem", "the seed allows", "D in f32, to float64", "D in f16, to float64", "D in f16, to cuBLAS"],
                    lines))


def squares_rows(run, type_name, activation="none"):
    rows = run["rows"] if run else []
    return {row["m"]: row for row in rows if row["type"] == type_name and row["activation"] == activation}


def squares_section(run, leaky):
    parts = ["## The tutorial's squares\nTFLOP/s, medians. The tutorial prints its numbers as a picture; the column before "
             "the last is the tutorial itself, run on an H200 with Triton 3.6: over cuBLAS in its own run (f16), TFLOP/s (e5m2).\n"]
    f16, e5m2 = squares_rows(run, "f16"), squares_rows(run, "e5m2")
    lines = []
    for size in sorted(set(f16) | set(SQUARES_F16_H200)):
        row = f16.get(size, {})
        lines.append([str(size)] + [number(speed(row, p), 0) for p in PROVIDERS]
                     + [number(over(ms(row, "cublas"), ms(row, "jitgemm")), 3),
                        number(over(ms(row, "triton"), ms(row, "jitgemm")), 3),
                        number(SQUARES_F16_H200.get(size)), number(over(ms(row, "cublas"), ms(row, "triton")))])
    parts.append(table(["f16, M = N = K", *PROVIDERS.values(), "ours over cuBLAS", "ours over Triton",
                        "tutorial over cuBLAS, before", "and in this run"], lines))
    lines = []
    for size in sorted(set(e5m2) | set(SQUARES_E5M2_H200)):
        row = e5m2.get(size, {})
        lines.append([str(size), number(speed(row, "jitgemm"), 0), number(speed(row, "triton"), 0),
                      number(over(ms(row, "triton"), ms(row, "jitgemm")), 3), number(SQUARES_E5M2_H200.get(size), 0)])
    parts.append(table(["e5m2, M = N = K", "jitgemm", "Triton", "ours over Triton", "tutorial, before"], lines))
    lines = []
    for type_name in ("f16", "e5m2"):
        plain, fused = squares_rows(run, type_name), squares_rows(leaky, type_name, "leaky_relu")
        both = [size for size in plain if size in fused]
        costs = [over(ms(fused[s], "jitgemm"), ms(plain[s], "jitgemm")) for s in both]
        rival = [over(ms(fused[s], "triton"), ms(fused[s], "jitgemm")) for s in both]
        lines.append([type_name, number(mean([c for c in costs if c]), 3), number(mean([r for r in rival if r]), 3)])
    parts.append(table(["leaky_relu fused", "time over plain, geometric mean", "ours over Triton"], lines))
    return "\n".join(parts)


def plot_squares(run, folder):
    """As the tutorial's picture: TFLOP/s over the size, with the quantiles as a band."""
    plt = style()
    folder.mkdir(parents=True, exist_ok=True)
    for type_name, name in (("f16", "fp16"), ("e5m2", "fp8")):
        rows = [row for _, row in sorted(squares_rows(run, type_name).items()) if speed(row, "jitgemm")]
        if not rows:
            continue
        figure, axes = plt.subplots(figsize=(7, 4.2))
        for provider, colour in (("cublas", "green"), ("jitgemm", "blue"), ("triton", "darkorange")):
            points = [row for row in rows if speed(row, provider)]
            if not points:
                continue
            sizes = [row["m"] for row in points]
            perf = lambda row, key: 2e-9 * row["m"] * row["n"] * row["k"] / row[provider][key]
            axes.plot(sizes, [perf(row, "ms") for row in points], color=colour, label=PROVIDERS[provider])
            axes.fill_between(sizes, [perf(row, "max_ms") for row in points], [perf(row, "min_ms") for row in points],
                              color=colour, alpha=0.15, linewidth=0)
        axes.set(xlabel="M = N = K", ylabel="TFLOPS", title=f"matmul-performance-{name}: {run['device']['name']}",
                 ylim=(0, None))
        axes.legend()
        figure.tight_layout()
        figure.savefig(folder / f"matmul-performance-{name}.png")
        plt.close(figure)


def singles_section(run):
    found = {(s["m"], s["n"], s["k"]): s for s in run["singles"]} if run else {}
    sms = run["device"]["sm_count"] if run else None
    lines, debug = [], []
    for shape, printed in SINGLES.items():
        ours = found.get(shape)
        cases = {(c["grid"], c["2 tiles"]): c for c in ours["cases"]} if ours else {}
        name = "x".join(map(str, shape))
        lines.append([f"{name}: torch / cuBLAS", f"{printed['torch']:.2f} ms", EMPTY, number(ours and ours["cublas_ms"], 4), EMPTY])
        for title, factor in (("1 an SM", 1), ("2 an SM", 2), ("tiles only", 0)):
            theirs, speedup = printed[title]
            for two_tiles in ((True, False) if factor else (False, )):
                case = cases.get((factor * sms, two_tiles)) if sms else None
                seed = f"{theirs:.2f} ms, {speedup:.2f}" if two_tiles or not factor else EMPTY
                then = number(SINGLES_H200[shape][title]) if two_tiles or not factor else EMPTY
                label = f"grid {title}, two_tiles={two_tiles}" if factor else "grid 0, tiles only"
                lines.append([f"{name}: {label}", seed, then, number(case and case["jitgemm_ms"], 4),
                              number(case and case["speedup"])])
        choice = ours["choice"] if ours else None
        lines.append([f"{name}: our own choice", EMPTY, EMPTY, number(choice and choice["jitgemm_ms"], 4),
                      number(choice and choice["speedup"])])
        case = cases.get((sms, True)) if sms else None
        grid, *rest = DEBUG[shape]
        fields = ("total_tiles_streamk", "total_blocking_tiles", "iters_per_tile", "total_iters_streamk")
        debug.append([name, f"{grid}: " + ", ".join(map(str, rest)) + "; 234 and 218 registers, 0 spills",
                      f"{sms}: " + ", ".join(str(case["debug"][f]) for f in fields)
                      + f"; {case['debug']['n_regs']} registers, {case['debug']['n_spills']} bytes spilled" if case else EMPTY])
    return ("## The notebook's single cases\n128x128x32 tiles, 4 stages, 4 warps, as there. \"H200\" is the notebook itself on an "
            "H200 with Triton 3.6, over torch. The notebook's grid is that of its first kernel alone, ours of the one launch.\n\n"
            + table(["case", "printed", "H200", "ours, ms", "ours over cuBLAS"], lines) + "\n"
            + table(["debug print, one program an SM, two_tiles", "printed (grid: stream-K tiles, whole tiles, iterations a "
                     "tile, in all)", "ours"], debug)
            + "\nThe notebook cuts a full wave of tiles even when none is left over (84 of 168 tiles on 84 programs); here "
            "full waves are never cut.\n")


def sweep_section(run):
    results = [r for r in run["results"] if r["speedup"]] if run else []
    def average(values):
        return number(sum(values) / len(values), 3) if values else EMPTY
    speedups = [r["speedup"] for r in results]
    lines = [[what, number(value, 3), EMPTY] for what, value in SWEEP]
    lines.append([f"ours, best of the notebook's grids, {len(results)} of {run['shapes'] if run else 1000}", EMPTY,
                  average(speedups)])
    chosen = [over(r["cublas_ms"], r["choice"]["jitgemm_ms"]) for r in results if r.get("choice")]
    lines.append([f"ours, our own choice, {len(chosen)} shapes", EMPTY, average(chosen)])
    text = ("## The notebook's sweep\nAverage speed-up over cuBLAS. The notebook's, and the first line of ours, are the best of 20 "
            "to 26 grids, found by trying them all; the last line is what the library picks.\n\n"
            + table(["run", "printed", "ours"], lines))
    if results:
        best = [min(r["jitgemm"], key=lambda m: m["jitgemm_ms"]) for r in results]
        two = sum(b["2 tiles"] for b in best)
        text += (f"\nOurs from {min(speedups):.2f} to {max(speedups):.2f}; the best grid had two_tiles in {two} of {len(best)} "
                 f"shapes; the largest discrepancy was {max(m['disc'] for r in results for m in r['jitgemm']):.3g} (the notebook "
                 "allows 5).\n")
    return text


def grouping(folder):
    """TFLOP/s with group_m 8 and 0, of the first shape that has both."""
    path = folder / "grouping.csv"
    if not path.exists():
        return None
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            found = {}
            for arm in filter(None, (row.get("pinned") or "").split(";")):
                us, _, config = arm.split(maxsplit=2)
                group = 8 if "group_m=8" in config else 0 if "group_m=0" in config else None
                found[group] = 2e-6 * int(row["m"]) * int(row["n"]) * int(row["k"]) / float(us)
            if {0, 8} <= set(found):
                return f"{found[0]:.0f} to {found[8]:.0f} ({row['m']} x {row['n']} x {row['k']})"
    return None


def example_section(folder):
    lines = [
        ["1536 x 1792 x 6016 on 82 programs: stream-K tiles, iterations", "4, 752", "4, 752"],
        ["for every program, and left over", "9, 32 (a slip: 752 - 82 x 9 is 14)", "9, 14"],
        ["on 84 programs: stream-K tiles", "0", "0"],
        ["9 of 9 x 9 tiles, row order and groups of 3: blocks loaded", "90, 54", "90, 54"],
        ["grouped order, TFLOP/s (theirs: A100)", "220 to 245", grouping(folder) or EMPTY],
    ]
    return ("## The explained examples\nThe first four are tests of `templates/schedule.cuh` (tests/test_schedule.cpp).\n\n"
            + table(["example", "printed", "ours"], lines))


def main(argv):
    parser = argparse.ArgumentParser(prog="report.py seeds", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rundir", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--png", type=Path, help="draw the squares into this folder, as the tutorial does")
    arguments = parser.parse_args(argv)
    checks, squares, leaky, singles, sweep = (
        read(arguments.rundir, name) for name in ("checks", "squares", "squares_leaky_relu", "singles", "sweep"))
    if arguments.png and squares:
        plot_squares(squares, arguments.png)
    page = [
        "# The seeds, and ours\nWhat Triton's matrix multiplication tutorial and a notebook on Stream-K print, beside what this "
        f"library does. {environment([squares, singles, sweep, checks])}\"Over\" is a ratio of speeds: above 1 ours is "
        f"faster; {EMPTY} was not printed there or not run here. Times of different GPUs do not compare; their ratios to "
        "cuBLAS say something. Written by `tools/report.py seeds`.\n",
        checks_section(checks), squares_section(squares, leaky), singles_section(singles), sweep_section(sweep),
        example_section(arguments.rundir),
    ]
    arguments.out.write_text("\n".join(page))
    print(arguments.out)
