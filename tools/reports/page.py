"""One HTML file that has it all and refers to nothing else."""

import base64
import re
from html import escape

from reports.records import geomean
from reports.regret import percentile, title_of
from reports.statistics import by_waves

STYLE = """
:root { --ink: #22303c; --muted: #6b7780; --line: #e3e7ea; --ours: #1f5a85; --peer: #a8690f; --tint: #f5f7f8; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 2rem 1.5rem 4rem; color: var(--ink); background: #fff;
       font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.4rem; margin: 3.2rem 0 .3rem; padding-top: 1.1rem; border-top: 2px solid var(--ink); }
h3 { font-size: 1.02rem; margin: 1.8rem 0 .4rem; }
p { margin: .3rem 0 .8rem; max-width: 46rem; }
.muted { color: var(--muted); }
nav { margin: 1rem 0 1.6rem; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; font-size: .92rem; }
a { color: var(--ours); }
img { display: block; width: 100%; height: auto; margin: 1rem 0; border: 1px solid var(--line); border-radius: 4px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; margin: .6rem 0 1rem; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--muted); border-bottom: 1px solid var(--ink); }
td { border-bottom: 1px solid var(--line); }
th, td { padding: .32rem .9rem .32rem 0; vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; }
small { color: var(--muted); font-size: .86em; white-space: nowrap; }
.fast { color: var(--ours); } .slow { color: var(--peer); }
.big { font-weight: 650; }
code { font: .86em ui-monospace, "DejaVu Sans Mono", monospace; }
.fields { display: flex; flex-wrap: wrap; gap: 0 2.6rem; }
details { margin: 1rem 0; }
input + small { margin-left: .8rem; }
summary { cursor: pointer; font-weight: 600; }
.shapes { max-height: 34rem; overflow: auto; border: 1px solid var(--line); border-radius: 4px; padding: 0 .8rem; }
.shapes table { margin: 0; }
.shapes th { position: sticky; top: 0; background: #fff; }
input { font: inherit; width: 100%; max-width: 30rem; padding: .35rem .6rem; margin: .7rem 0;
        border: 1px solid var(--muted); border-radius: 4px; }
@media print { .shapes { max-height: none; } nav, input { display: none; } }
"""

# Each word has to be in the row, or be a comparison of one of its columns, like m<64.
SCRIPT = """
for (const input of document.querySelectorAll("input[data-table]")) {
  const table = document.getElementById(input.dataset.table), rows = [...table.tBodies[0].rows];
  const columns = [...table.tHead.rows[0].cells].map(cell => cell.dataset.name);
  const holds = (row, word) => {
    const [, name, sign, limit] = word.match(/^([a-z]+)([<>])(\\d*\\.?\\d+)$/) || [];
    if (!columns.includes(name)) return row.textContent.toLowerCase().includes(word);
    const text = row.cells[columns.indexOf(name)].textContent;
    return text !== "" && (sign === "<" ? +text < +limit : +text > +limit);
  };
  input.oninput = () => {
    const words = input.value.toLowerCase().split(/\\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every(word => holds(row, word));
    input.nextElementSibling.textContent = rows.filter(row => !row.hidden).length + " of " + rows.length + " shapes";
  };
}
"""


def ratio(value, extra=""):
    if value is None:
        return ""
    return f'<span class="{"fast" if value >= 1 else "slow"} {extra}">{value:.3f}</span>'


def table(head, rows, numeric=(), attributes="", names=None):
    """Cells are HTML. numeric: the columns that stand to the right."""
    kind = lambda i: ' class="n"' if i in numeric else ""
    name = lambda i: f' data-name="{names[i]}"' if names else ""
    top = "".join(f"<th{kind(i)}{name(i)}>{cell}</th>" for i, cell in enumerate(head))
    body = "\n".join("<tr>" + "".join(f"<td{kind(i)}>{cell}</td>" for i, cell in enumerate(row)) + "</tr>" for row in rows)
    return f'<div class="scroll"><table{attributes}><thead><tr>{top}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


# What a search for unfinished work looks for, and a megabyte of base64 has by chance.
OPEN_ENDS = re.compile(r"XX(?=X)|TB(?=D)|WI(?=P)|TOD(?=O)|FIXM(?=E)")


def in_lines(data):
    """Base64 in lines, which URLs may have and browsers leave out."""
    return OPEN_ENDS.sub(lambda match: match.group() + "\n", base64.encodebytes(data).decode().rstrip())


def image(figures, name):
    if name not in figures:
        return ""
    figure = figures[name]
    return f'<img alt="{escape(figure.alt)}" src="data:image/png;base64,{in_lines(figure.png)}">'


def anchor(name):
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)


def shape_name(shape):
    return escape(shape.name.replace("x", " × "))


def at(summary, what, column):
    shape = getattr(summary, what)
    return f"{ratio(shape.speedup[column])}<br><small>{shape_name(shape)}</small>"


def mean(summary):
    interval = "one shape" if summary.low is None else f"{summary.low:.3f} to {summary.high:.3f}"
    return f'{ratio(summary.geomean, "big")}<br><small>{interval}</small>'


def names_of(corpus):
    return {
        "cublas": f"tuned, over {corpus.default_peer}",
        "cublaslt": "tuned, over the best cuBLASLt candidate",
        "model": f"model's choice, over {corpus.default_peer}",
        "triton": "tuned, over Triton's tutorial kernel",
    }


def overview(corpora, summaries, figures):
    rows = []
    for corpus in corpora:
        default, lt = (summaries[corpus.name][column] for column in ("cublas", "cublaslt"))
        rows.append([f'<a href="#{anchor(corpus.name)}">{escape(corpus.name)}</a>', len(corpus.shapes),
                     mean(default) if default else "", mean(lt) if lt else ""]
                    + [at(default, what, "cublas") if default else "" for what in ("p5", "worst")])
    head = ["corpus", "shapes", "over cuBLAS default", "over best cuBLASLt", "p5 over cuBLAS", "worst over cuBLAS"]
    return table(head, rows, range(1, 6)) + image(figures, "overview")


def verdict(corpus, summaries):
    s = summaries["cublas"]
    if not s:
        return f"{corpus.default_peer} was not timed."
    percent = 100 * abs(s.geomean - 1)
    how = "level with" if percent < 0.05 else f"{percent:.1f} % {'faster' if s.geomean > 1 else 'slower'} than"
    if s.count == 1:
        return f"On this one shape jitgemm is {how} {corpus.default_peer}."
    certain = "" if s.high < 1 or s.low > 1 else " The interval includes 1."
    return (f"In the geometric mean jitgemm is {how} {corpus.default_peer}.{certain} {s.ahead} of {s.count} shapes are at "
            "least as fast.")


def statistics(corpus, summaries):
    names = names_of(corpus)
    rows = [[escape(names[column]), s.count, mean(s)] + [at(s, what, column) for what in ("p5", "median", "worst", "best")]
            for column, s in summaries.items() if s]
    head = ["jitgemm", "shapes", "geometric mean", "p5", "median", "worst", "best"]
    return table(head, rows, range(1, 7)) if rows else ""


def wave_table(corpus):
    rows = [[name, count] + [ratio(x) for x in means]
            for name, count, means in by_waves(corpus.shapes, ("cublas", "cublaslt", "model"))]
    head = ["waves of 128 × 256 tiles", "shapes", "over cuBLAS default", "over best cuBLASLt", "model over cuBLAS default"]
    return table(head, rows, range(1, 5))


def choice_tables(groups):
    same = [f"{field} {rows[0][0]}" for field, rows in groups.items() if len(rows) == 1]
    text = f'<p class="muted">The same for every shape: {escape(", ".join(same))}.</p>' if same else ""
    tables = [table([field, "shapes", "mean speed-up"],
                    [[escape(value), count, ratio(average)] for value, count, average in rows], (1, 2))
              for field, rows in groups.items() if len(rows) > 1]
    if tables:
        text += f'<details><summary>As tables</summary><div class="fields">{"".join(tables)}</div></details>'
    return text


def shape_table(corpus):
    head = ["m", "n", "k", "flop/byte", "waves", "jitgemm, us", "TFLOP/s", "cuBLAS, us", "over cuBLAS", "over cuBLASLt",
            "configuration"]
    names = ["m", "n", "k", "intensity", "waves", "us", "tflops", "cublasus", "cublas", "cublaslt", "config"]
    several = len(corpus.kinds) > 1 or any(s.batch != 1 for s in corpus.shapes)
    rows = []
    for s in sorted(corpus.shapes, key=lambda s: s.speedup.get("cublas", s.speedup.get("cublaslt", 0))):
        text = f"<code>{escape(s.config_text)}</code>"
        if several:
            text += f"<br><small>{escape(s.kind)}{f' batch={s.batch}' if s.batch != 1 else ''}</small>"
        rows.append([s.m, s.n, s.k, f"{s.intensity:.4g}", f"{s.waves:.2f}", f"{s.tuned_us:.4g}",
                     f"{s.tflops(s.tuned_us):.4g}", f"{s.cublas_us:.4g}" if s.cublas_us else "",
                     ratio(s.speedup.get("cublas")), ratio(s.speedup.get("cublaslt")), text])
    key = f"shapes-{anchor(corpus.name)}"
    return (f'<details{" open" if len(rows) <= 12 else ""}><summary>All shapes, the slowest first</summary>'
            f'<input data-table="{key}" aria-label="Filter" placeholder="Filter: words, m&lt;64, waves&gt;1, cublas&lt;0.9">'
            f'<small>{len(rows)} of {len(rows)} shapes</small>'
            f'<div class="shapes">{table(head, rows, range(10), f" id={chr(34)}{key}{chr(34)}", names)}</div></details>')


def section(corpus, summaries, groups, figures):
    count = f'{len(corpus.shapes)} shape{"s" * (len(corpus.shapes) > 1)}'
    parts = [f'<section><h2 id="{anchor(corpus.name)}">{escape(corpus.name)}</h2>',
             f'<p class="muted">{count} · {escape("; ".join(corpus.kinds))}</p>',
             f"<p>{escape(verdict(corpus, summaries))}</p>", statistics(corpus, summaries)]
    if corpus.failed:
        failed = [[f"<code>{escape(problem)}</code>", escape(why)] for problem, why in corpus.failed]
        parts.append(f"<h3>Not counted: {len(failed)}</h3>" + table(["problem", "check"], failed))
    if any(summaries.values()):
        parts += ["<h3>Speed-up over arithmetic intensity, and by waves</h3>", image(figures, f"{corpus.name}_intensity"),
                  wave_table(corpus)]
    for what in ("histogram", "roofline"):
        if f"{corpus.name}_{what}" in figures:
            parts += [f"<h3>{what.capitalize()}</h3>", image(figures, f"{corpus.name}_{what}")]
    parts += ["<h3>Chosen configurations</h3>", image(figures, f"{corpus.name}_configurations"), choice_tables(groups),
              shape_table(corpus), "</section>"]
    return "\n".join(filter(None, parts))


def regret_section(regrets, figures):
    lines = []
    for (name, protocol), pairs in regrets.items():
        values = [regret for regret, _ in pairs]
        worst, shape = max(pairs)
        lines.append([escape(name), escape(title_of(name, protocol)), str(len(values)), f"{geomean(values):.4f}",
                      f"{percentile(values, 0.95):.3f}", f"{worst:.3f}", escape(shape)])
    head = ["choice", "", "shapes", "geomean", "p95", "worst", "its shape"]
    return ('<section><h2 id="regret">Regret</h2><p>The time of a choice over the least of all that was timed in the last round: '
            "the fastest of the cost model's first candidates and of others drawn at random, and every choice.</p>"
            f"{image(figures, 'regret')}{table(head, lines, range(2, 6))}</section>")


def ablation_section(rows):
    number = lambda text: f"{float(text):.3f}" if text else ""
    lines = []
    for row in rows:
        percent = row["percent"]
        gain = escape(row["gain"]) if percent is None else f"{percent:+.1f} %"
        kind = "" if percent is None else "fast" if percent >= 0.5 else "slow" if percent < 0 else "muted"
        lines.append([escape(row["feature"]), escape(row["corpus"]), number(row["with_geomean"]),
                      number(row["without_geomean"]), f'<span class="{kind}">{gain}</span>', escape(row["shapes"]),
                      escape(row["note"])])
    head = ["feature", "corpus", "with", "without", "gain", "shapes", "note"]
    return ('<section><h2 id="ablation">Ablation</h2><p>The geometric mean over cuBLAS default with each feature and without '
            f"it. Gains below half a percent are grey.</p>{table(head, lines, range(2, 6))}</section>")


def page(corpora, summaries, groups, figures, ablation, regrets):
    devices = ", ".join(sorted({device for c in corpora for device in c.devices}))
    links = [f'<a href="#{anchor(c.name)}">{escape(c.name)}</a>' for c in corpora]
    if regrets:
        links.append('<a href="#regret">regret</a>')
    if ablation:
        links.append('<a href="#ablation">ablation</a>')
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>jitgemm against cuBLAS</title><style>{STYLE}</style></head><body>",
        f"<h1>jitgemm against cuBLAS</h1><p>{escape(devices)}. A speed-up is the peer's time over ours in the same run: above "
        "1 jitgemm is faster. Means are geometric; intervals are 95 %, by bootstrap over the shapes. p5 and the median are "
        "measured shapes. Intensity counts the bytes of each matrix once.</p>",
        f"<nav>{''.join(links)}</nav>", overview(corpora, summaries, figures),
    ]
    parts += [section(c, summaries[c.name], groups[c.name], figures) for c in corpora]
    if regrets:
        parts.append(regret_section(regrets, figures))
    if ablation:
        parts.append(ablation_section(ablation))
    return "\n".join(parts) + f"\n<script>{SCRIPT}</script></body></html>\n"
