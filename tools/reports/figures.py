"""The figures of the reports. Alone in needing matplotlib, and only once one is drawn."""

import io
import math
import sys
from dataclasses import dataclass

from reports.records import BANDWIDTH, CEILINGS, CONFIG_FIELDS, REP, WAVE_CLASSES, geomean

INK, MUTED, GRID = "#22303c", "#6b7780", "#e3e7ea"
OURS, PEER = "#1f5a85", "#c98a2d"
WAVE_COLOURS = ["#c9b07a", "#79b3a4", "#3c7fa3", "#143a57"]
RATIO_TICKS = [
    [i / 50 for i in range(10, 151)],
    [i / 20 for i in range(4, 61)],
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8, 10, 15, 20],
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 15, 20],
    [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.4, 2, 3, 5, 10, 20],
]
REGRET_COLOURS = {"model": PEER, "calibrated": "#79b3a4", "derived": "#c9b07a", "nearest": "#8d6a9f", "tuned": OURS,
                  "repeats": MUTED}
LOG_DIGITS = [[i / 5 for i in range(5, 50)], [1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 5], [1]]
MOST_TICKS = 11
MOST_BARS = 14


@dataclass
class Figure:
    png: bytes
    alt: str  # what it shows, in a sentence


def style():
    try:
        import matplotlib
    except ImportError:
        sys.exit("report.py: error: matplotlib is missing: install python3-matplotlib, or see --help for what needs none")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({
        "figure.dpi": 120, "font.size": 10.5, "axes.titlesize": 12, "axes.titleweight": "bold",
        "axes.titlelocation": "left", "axes.titlepad": 10, "axes.labelsize": 10.5, "axes.edgecolor": MUTED,
        "axes.labelcolor": INK, "text.color": INK,
        "axes.titlecolor": INK, "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": GRID, "grid.alpha": 1,
        "axes.axisbelow": True, "legend.fontsize": 10, "legend.frameon": False,
        "figure.constrained_layout.w_pad": 0.1, "figure.constrained_layout.h_pad": 0.1,
    })
    return plt


def finish(plt, figure, alt, description=None):
    """In 96 colours, a third of the bytes. description: text that the file keeps, of what it was drawn from."""
    from PIL import Image, PngImagePlugin  # which matplotlib has

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png")
    plt.close(figure)
    texts = PngImagePlugin.PngInfo()
    if description:
        texts.add_text("Description", description)
    Image.open(drawn).convert("RGB").quantize(96).save(small, format="PNG", optimize=True, pnginfo=texts)
    return Figure(small.getvalue(), alt)


def set_ticks(axis, low, high, choices):
    """The first of the choices that is not too many."""
    inside = [[x for x in ticks if low <= x <= high] for ticks in choices]
    axis.set_ticks(next((ticks for ticks in inside if len(ticks) <= MOST_TICKS), inside[-1]))
    axis.set_ticks([], minor=True)
    axis.set_major_formatter(lambda x, _: f"{x:g}")


def log_axis(axis, low, high):
    set_ticks(axis, low, high, [[digit * 10.0 ** e for e in range(-4, 7) for digit in digits] for digits in LOG_DIGITS])


def ratio_limits(values):
    low, high = min(values + [0.95]), max(values + [1.05])
    room = (high / low) ** 0.05
    return low / room, high * room


def intensity_axis(axes, shapes):
    values = [s.intensity for s in shapes]
    low, high = min(values) / 1.25, max(values) * 1.25
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    log_axis(axes.xaxis, low, high)
    axes.set_xlabel("arithmetic intensity (flop per byte)")


def legend_below(figure, axes):
    """Each label once. Room is left by hand: matplotlib before 3.7 has no legends outside."""
    inches = 0.38
    part = inches / figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, part, 1, 1 - part))
    named = dict(zip(*reversed(axes.get_legend_handles_labels())))
    figure.legend(named.values(), named.keys(), loc="lower center", ncols=len(named), handletextpad=0.3, columnspacing=1.6,
                  markerscale=1.3)


def plural(count, what):
    return f"{count} {what}" + ("" if count == 1 else "s")


def subtitle(figure, corpus, text):
    figure.suptitle(f"{corpus.name}   ·   {text}", x=0.012, ha="left", fontsize=10, color=MUTED)


def heading(figure, corpus):
    kinds = corpus.kinds[0] if len(corpus.kinds) == 1 else f"{len(corpus.kinds)} kinds of problems"
    subtitle(figure, corpus, f"{plural(len(corpus.shapes), 'shape')}   ·   {kinds}")


def overview(plt, corpora, summaries, description=None):
    rows = [c for c in corpora if summaries[c.name]["cublas"] or summaries[c.name]["cublaslt"]]
    figure, axes = plt.subplots(figsize=(10, 1.6 + 0.5 * len(rows)), layout="constrained")
    ends = []
    for y, corpus in enumerate(rows):
        for ratio, offset, colour, name in (("cublas", -0.15, OURS, "over cuBLAS default"),
                                            ("cublaslt", 0.15, PEER, "over best cuBLASLt")):
            s = summaries[corpus.name][ratio]
            if not s:
                continue
            p5, p95 = s.p5.speedup[ratio], s.p95.speedup[ratio]
            ends += [p5, p95]
            axes.plot([p5, p95], [y + offset] * 2, color=colour, alpha=0.35, linewidth=2, solid_capstyle="butt")
            if s.low is not None:
                axes.plot([s.low, s.high], [y + offset] * 2, color=colour, linewidth=6, solid_capstyle="butt")
            axes.plot(s.geomean, y + offset, "o", color=colour, markeredgecolor="white", markersize=8, label=name)
            axes.annotate(f"{s.geomean:.3f}", (p95, y + offset), xytext=(6, 0), textcoords="offset points", va="center",
                          fontsize=9.5, color=colour)
    low, high = ratio_limits(ends)
    high *= (high / low) ** 0.06  # room for the last number
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    set_ticks(axes.xaxis, low, high, RATIO_TICKS)
    axes.axvline(1, color=INK, linewidth=1, zorder=1)
    axes.set_yticks(range(len(rows)), [f"{c.title} ({len(c.shapes)})" for c in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set(xlabel="time of the peer over ours; above 1 jitgemm is faster; in brackets the number of shapes",
             title="Speed-up: geometric mean, its 95 % interval (thick), p5 to p95 (thin)")
    legend_below(figure, axes)
    return finish(plt, figure, "The geometric mean of the speed-up of each corpus, with its interval.", description)


def peers_of(corpus, summaries):
    names = {"cublas": corpus.default_peer, "cublaslt": "best cuBLASLt"}
    return [(ratio, name) for ratio, name in names.items() if summaries[corpus.name][ratio]]


def speedup_over_intensity(plt, corpus, summaries):
    peers = peers_of(corpus, summaries)
    figure, panels = plt.subplots(1, len(peers), figsize=(11, 4.9), sharey=True, squeeze=False, layout="constrained")
    low, high = ratio_limits([s.speedup[ratio] for ratio, _ in peers for s in corpus.with_speedup(ratio)])
    for axes, (ratio, name) in zip(panels[0], peers):
        shapes = corpus.with_speedup(ratio)
        for index, (label, _) in enumerate(WAVE_CLASSES):
            chosen = [s for s in shapes if s.wave_class == index]
            axes.scatter([s.intensity for s in chosen], [s.speedup[ratio] for s in chosen], s=30, color=WAVE_COLOURS[index],
                         edgecolor="white", linewidth=0.5, label=label)
        mean = summaries[corpus.name][ratio].geomean
        axes.axhline(1, color=INK, linewidth=1, zorder=1)
        axes.axhline(mean, color=MUTED, linewidth=1.5, linestyle=(0, (5, 3)), zorder=1, label="geometric mean")
        axes.set_yscale("log")
        axes.set_ylim(low, high)
        intensity_axis(axes, shapes)
        axes.set_title(f"Over {name}: {mean:.3f}")
    set_ticks(panels[0][0].yaxis, low, high, RATIO_TICKS)
    panels[0][0].set_ylabel("speed-up (time of the peer / ours)")
    heading(figure, corpus)
    legend_below(figure, panels[0][0])
    return finish(plt, figure, f"{corpus.name}: speed-up over arithmetic intensity, coloured by waves.")


def histogram(plt, corpus, summaries):
    peers = peers_of(corpus, summaries)
    figure, panels = plt.subplots(1, len(peers), figsize=(11, 3.9), sharey=True, squeeze=False, layout="constrained")
    low, high = ratio_limits([s.speedup[ratio] for ratio, _ in peers for s in corpus.with_speedup(ratio)])
    # An edge of the bins at 1, so that no bar mixes faster with slower.
    count = min(36, max(8, round(2.5 * math.sqrt(len(corpus.shapes)))))
    step = math.log(high / low) / count
    edges = [math.exp(i * step) for i in range(math.floor(math.log(low) / step), math.ceil(math.log(high) / step) + 1)]
    for axes, (ratio, name) in zip(panels[0], peers):
        values = [s.speedup[ratio] for s in corpus.with_speedup(ratio)]
        ahead = sum(x >= 1 for x in values)
        for part, colour in (([x for x in values if x < 1], PEER), ([x for x in values if x >= 1], OURS)):
            axes.hist(part, bins=edges, color=colour, edgecolor="white", linewidth=0.8)
        axes.axvline(1, color=INK, linewidth=1)
        axes.set_xscale("log")
        axes.set_xlim(edges[0], edges[-1])
        set_ticks(axes.xaxis, edges[0], edges[-1], RATIO_TICKS)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="x", visible=False)
        axes.set(xlabel="speed-up (time of the peer / ours)",
                 title=f"Over {name}: {ahead} of {len(values)} not slower")
    panels[0][0].set_ylabel("shapes")
    heading(figure, corpus)
    return finish(plt, figure, f"{corpus.name}: histogram of the speed-ups.")


def draw_ceilings(axes, shapes, low, high):
    """Over the intensities from low to high. The highest point."""
    top = 0
    for element_bytes in sorted({s.element_bytes for s in shapes}):
        peak = CEILINGS[element_bytes]
        ridge = peak / BANDWIDTH
        corners = sorted({low, min(max(ridge, low), high), high})
        axes.plot(corners, [min(peak, BANDWIDTH * x) for x in corners], color=INK, linewidth=1.5)
        top = max(top, min(peak, BANDWIDTH * high))
        label = dict(textcoords="offset points", ha="right", fontsize=10)
        if ridge < high:
            axes.annotate(f"{peak} TFLOP/s, {8 * element_bytes}-bit operands", (high, peak), xytext=(-4, 5), **label)
    ridge = min(CEILINGS[s.element_bytes] for s in shapes) / BANDWIDTH  # up to there all share the slope
    if ridge > low:
        x = math.sqrt(low * min(ridge, high))
        axes.annotate(f"{BANDWIDTH} TB/s", (x, BANDWIDTH * x), xytext=(-6, 4), **label)
    return top


def roofline(plt, corpus):
    figure, axes = plt.subplots(figsize=(11, 5.4), layout="constrained")
    shapes = corpus.shapes
    achieved = []
    peer = dict(label=corpus.default_peer, facecolors="none", edgecolors=PEER, linewidths=1.3)
    ours = dict(label="jitgemm, tuned", color=OURS, edgecolor="white", linewidth=0.5)
    for column, look in (("cublas_us", peer), ("tuned_us", ours)):
        points = [(s.intensity, s.tflops(getattr(s, column))) for s in shapes if getattr(s, column)]
        achieved += [y for _, y in points]
        if points:
            axes.scatter(*zip(*points), s=32, **look)
    intensity_axis(axes, shapes)
    axes.set_yscale("log")
    bottom, top = min(achieved) / 1.5, max(achieved)
    title = "Achieved speed"
    if all("H200" in device for device in corpus.devices):
        top = max(top, draw_ceilings(axes, shapes, *axes.get_xlim()))
        title += " under the ceilings measured on an H200"
    axes.set_ylim(bottom, top * 1.6)
    log_axis(axes.yaxis, *axes.get_ylim())
    axes.set(ylabel="achieved (TFLOP/s)", title=title)
    axes.legend(loc="lower right", handletextpad=0.2, markerscale=1.2)
    heading(figure, corpus)
    return finish(plt, figure, f"{corpus.name}: achieved TFLOP/s over arithmetic intensity.")


def shortened(rows, most):
    """At most that many rows, each with whether it stands for the rest."""
    rest = rows[most - 1:] if len(rows) > most else []
    kept = [(*row, False) for row in rows[:len(rows) - len(rest)]]
    return kept + ([(f"{len(rest)} others", sum(count for _, count, _ in rest), None, True)] if rest else [])


def configurations(plt, corpus, groups):
    """groups: of each field (value, shapes, mean speed-up or None), the most frequent first."""
    several = [field for field in CONFIG_FIELDS if len(groups[field]) > 1]  # one value tells nothing apart
    # The longest panel on the left, the others below each other on the right.
    first = max(several, key=lambda field: len(groups[field]))
    others = [field for field in several if field != first]
    shown = {field: shortened(groups[field], MOST_BARS) for field in others}
    right = sum(len(rows) + 1.6 for rows in shown.values())
    shown[first] = shortened(groups[first], max(MOST_BARS, round(right - 1.6)))
    height = 0.29 * max(len(shown[first]) + 1.6, right) + 0.7
    figure = plt.figure(figsize=(11, height), layout="constrained")
    grid = figure.add_gridspec(1, 2 if others else 1)
    panels = {first: figure.add_subplot(grid[0])}
    if others:
        stack = grid[1].subgridspec(len(others), 1, height_ratios=[len(shown[field]) + 0.6 for field in others])
        panels.update({field: figure.add_subplot(stack[i]) for i, field in enumerate(others)})
    for field, axes in panels.items():
        rows = shown[field]
        lengths = [0 if rest else count for _, count, _, rest in rows]
        colours = [MUTED if mean is None else OURS if mean >= 1 else PEER for _, _, mean, _ in rows]
        axes.barh(range(len(rows)), lengths, color=colours, height=0.68)
        for y, (_, count, mean, _) in enumerate(rows):
            axes.annotate(f"{count}" + (f" · {mean:.3f}" if mean else ""), (lengths[y], y), xytext=(5, 0),
                          textcoords="offset points", va="center", fontsize=9.5)
        axes.set_yticks(range(len(rows)), [row[0] for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(0, 1.3 * max(lengths))
        axes.set_xticks([])
        axes.grid(False)
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(left=False)
        axes.set_title(field.capitalize(), fontsize=11, pad=5)
    subtitle(figure, corpus, f"shapes that chose it · their geometric mean over {corpus.default_peer}, blue from 1 up")
    return finish(plt, figure, f"{corpus.name}: how often each tile, cluster, schedule and number of stages was chosen.")


def regret(plt, regrets):
    drawing, axes = plt.subplots(figsize=(10, 4.6), layout="constrained")
    count = max(map(len, regrets.values()))
    for (name, protocol), pairs in regrets.items():
        values = sorted(regret for regret, _ in pairs)
        part = [100 * (i + 1) / len(values) for i in range(len(values))]
        axes.step([1, *values], [0, *part], where="post", color=REGRET_COLOURS.get(name, INK), linewidth=2,
                  linestyle="-" if protocol == REP else "--",
                  label=f"{name}, {protocol}: {geomean(values):.3f}")
    axes.axhline(95, color=GRID, linewidth=1.5)
    axes.annotate("95 %", (1, 95), xytext=(-4, 0), textcoords="offset points", ha="right", va="center", fontsize=9,
                  color=MUTED, annotation_clip=False)
    axes.set_xlim(1, max(1.1, min(1.5, max(regret for pairs in regrets.values() for regret, _ in pairs) * 1.01)))
    axes.set_ylim(0, 101)
    axes.set_xlabel("time over the best known")
    axes.set_ylabel("shapes at most so far off (%)")
    axes.set_title(f"Regret of choices on {count} fresh shapes")
    axes.legend(loc="lower right", title="geometric mean")
    return finish(plt, drawing, f"Share of {count} shapes over the regret of each way to choose a configuration.")


def draw(corpora, summaries, groups, regrets):
    """Name of each figure and the figure; none where there is nothing to show."""
    plt = style()
    figures = {}
    if any(summaries[c.name][ratio] for c in corpora for ratio in ("cublas", "cublaslt")):
        figures["overview"] = overview(plt, corpora, summaries)
    for c in corpora:
        if peers_of(c, summaries):
            figures[f"{c.name}_intensity"] = speedup_over_intensity(plt, c, summaries)
            figures[f"{c.name}_histogram"] = histogram(plt, c, summaries)
        figures[f"{c.name}_roofline"] = roofline(plt, c)
        if any(len(rows) > 1 for rows in groups[c.name].values()):
            figures[f"{c.name}_configurations"] = configurations(plt, c, groups[c.name])
    if regrets:
        figures["regret"] = regret(plt, regrets)
    return figures
