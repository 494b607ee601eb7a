"""How far choices are from the best known, for the page of report.py's corpora command."""

from html import escape

from regret import geomean, percentile, regrets_of
from report_figures import GRID, INK, MUTED, OURS, PEER, finish, style
from report_records import BadInput, rows_of

WHAT = {
    "model": "the cost model, constants fitted to the device",
    "calibrated": "the cost model after tune --calibrate",
    "derived": "the cost model, constants derived from the device's attributes",
    "nearest": "the nearest of 200 tuned shapes",
    "tuned": "measured, default budget",
    "repeats": "noise: one configuration against itself",
}
COLOURS = {"model": PEER, "calibrated": "#79b3a4", "derived": "#c9b07a", "nearest": "#8d6a9f", "tuned": OURS, "repeats": MUTED}


def read_regrets(path):
    """choice -> [(regret, shape)]; BadInput if there are none."""
    rows = [row for row in rows_of(path, ["m", "n", "k", "others", "check"]) if row["check"] == "ok"]
    try:
        regrets = regrets_of(rows)
    except (ValueError, KeyError) as error:
        raise BadInput(f"{path} is not what `jitgemm bench --finalists N --csv FILE` writes: {error}") from error
    if not regrets:
        raise BadInput(f"{path} has no shape with finalists: `jitgemm bench --finalists N --csv FILE` writes them")
    return {name: regrets[name] for name in [*WHAT, *regrets] if name in regrets}


def figure(regrets):
    plt = style()
    drawing, axes = plt.subplots(figsize=(10, 4.6), layout="constrained")
    count = max(map(len, regrets.values()))
    for name, pairs in regrets.items():
        values = sorted(regret for regret, _ in pairs)
        part = [100 * (i + 1) / len(values) for i in range(len(values))]
        axes.step([1, *values], [0, *part], where="post", color=COLOURS.get(name, INK), linewidth=2,
                  label=f"{name}: {geomean(values):.3f}")
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


def section(regrets, image, table):
    lines = []
    for name, pairs in regrets.items():
        values = [regret for regret, _ in pairs]
        worst, shape = max(pairs)
        lines.append([escape(name), escape(WHAT.get(name, "")), str(len(values)), f"{geomean(values):.4f}",
                      f"{percentile(values, 0.95):.3f}", f"{worst:.3f}", escape(shape)])
    head = ["choice", "", "shapes", "geomean", "p95", "worst", "its shape"]
    return ('<section><h2 id="regret">Regret</h2><p>The time of a choice over the least of all that was timed in the last round: '
            "the fastest of the cost model's first candidates and of others drawn at random, and every choice.</p>"
            f"{image}{table(head, lines, range(2, 6))}</section>")
