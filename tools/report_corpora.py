"""Speed against cuBLAS, corpus by corpus, as figures, one page and one line each.

  tools/report.py corpora CSV... [--html OUT.html] [--png DIR] [--ablation FILE] [--regret FILE]

Each CSV file of `jitgemm bench` is a corpus, named as the file. Only shapes that were checked and timed on a GPU count. On
stdout, one line a corpus: its name, the number of shapes, then for cuBLAS default and for the best cuBLASLt candidate the
geometric mean of the peer's time over ours with its 95 % interval, p5 and the worst, with their shapes. Above 1 jitgemm is
faster. The page has its images inside and refers to nothing else.
"""

import argparse
import sys
from pathlib import Path

import report_regret
from report_records import BadInput, RATIOS, read_ablation, read_corpora
from report_statistics import choices, summarise

def fail(error):
    sys.exit(f"report.py: error: {error}")


def summary_line(corpus, summaries):
    words = [corpus.name, str(len(corpus.shapes))]
    for ratio in ("cublas", "cublaslt"):
        s = summaries[ratio]
        if not s:
            words.append(f"{ratio} -")
            continue
        interval = "[-, -]" if s.low is None else f"[{s.low:.3f}, {s.high:.3f}]"
        p5, worst = (f"{shape.speedup[ratio]:.3f} ({shape.name})" for shape in (s.p5, s.worst))
        words.append(f"{ratio} {s.geomean:.3f} {interval} p5 {p5} worst {worst}")
    return " ".join(words)


def main(argv):
    parser = argparse.ArgumentParser(prog="report.py corpora", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, nargs="+")
    parser.add_argument("--html", type=Path, help="write the page to this file")
    parser.add_argument("--png", type=Path, help="write the figures into this folder")
    parser.add_argument("--ablation", type=Path,
                        help="a CSV file of feature,corpus,with_geomean,without_geomean,gain,shapes,note, for the page")
    parser.add_argument("--regret", type=Path, help="a CSV file of `jitgemm bench --finalists N`, for the page")
    parser.add_argument("--no-plots", action="store_true", help="a page of tables only; needs no matplotlib")
    arguments = parser.parse_args(argv)
    if arguments.no_plots and arguments.png:
        parser.error("--png and --no-plots exclude each other: leave one out")
    try:
        corpora = read_corpora(arguments.csv)
        ablation = read_ablation(arguments.ablation) if arguments.ablation else []
        regrets = report_regret.read_regrets(arguments.regret) if arguments.regret else {}
    except BadInput as error:
        fail(error)
    summaries = {c.name: {ratio: summarise(c.shapes, ratio) for ratio in RATIOS} for c in corpora}
    chosen = {c.name: choices(c.shapes) for c in corpora}
    figures = {}
    if (arguments.html or arguments.png) and not arguments.no_plots:
        import report_figures

        figures = report_figures.draw(corpora, summaries, chosen)
        if regrets:
            figures["regret"] = report_regret.figure(regrets)
    try:
        if arguments.png:
            arguments.png.mkdir(parents=True, exist_ok=True)
            for name, figure in figures.items():
                (arguments.png / f"{name}.png").write_bytes(figure.png)
        if arguments.html:
            import report_page

            page = report_page.page(corpora, summaries, chosen, figures, ablation, regrets)
            arguments.html.write_text(page, encoding="utf-8")
    except OSError as error:
        fail(f"{error.filename} cannot be written: {error.strerror}")
    for corpus in corpora:
        print(summary_line(corpus, summaries[corpus.name]))
