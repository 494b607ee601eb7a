"""Speed against cuBLAS, corpus by corpus, as figures, one page and one line each.

  tools/report.py corpora tools/results/h200 --html report.html
  tools/report.py corpora CSV... [--html OUT.html] [--png DIR] [--ablation FILE] [--regret FILE]

Each CSV file of `jitgemm bench` is a corpus, named as the file; a folder that tools/gpu_check.sh has filled stands for all
of its files, ablation.csv and regret.csv too. Only shapes that were checked and timed on a GPU count. On
stdout, one line a corpus: its name, the number of shapes, then for cuBLAS default and for the best cuBLASLt candidate the
geometric mean of the peer's time over ours with its 95 % interval, p5 and the worst, with their shapes. Above 1 jitgemm is
faster. The page has its images inside and refers to nothing else.
"""

import argparse
import sys
from pathlib import Path

from reports import figures as drawing
from reports.page import page
from reports.records import BadInput, RATIOS, files_of, read_ablation, read_corpora
from reports.regret import read_regrets
from reports.statistics import choices, summarise


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


def expanded(arguments):
    """The CSV files, with those of folders; what else such a folder has becomes an argument, unless one was given."""
    paths = []
    for path in arguments.csv:
        if not path.is_dir():
            paths.append(path)
            continue
        files = files_of(path)
        paths += files.corpora
        arguments.ablation = arguments.ablation or files.ablation
        arguments.regret = arguments.regret or files.regret
    return paths


def main(argv):
    parser = argparse.ArgumentParser(prog="report.py corpora", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, nargs="+", help="a CSV file of `jitgemm bench`, or a folder of them")
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
        corpora = read_corpora(expanded(arguments))
        ablation = read_ablation(arguments.ablation) if arguments.ablation else []
        regrets = read_regrets(arguments.regret) if arguments.regret else {}
    except BadInput as error:
        fail(error)
    summaries = {c.name: {ratio: summarise(c.shapes, ratio) for ratio in RATIOS} for c in corpora}
    chosen = {c.name: choices(c.shapes) for c in corpora}
    figures = {}
    if (arguments.html or arguments.png) and not arguments.no_plots:
        figures = drawing.draw(corpora, summaries, chosen, regrets)
    try:
        if arguments.png:
            arguments.png.mkdir(parents=True, exist_ok=True)
            for name, figure in figures.items():
                (arguments.png / f"{name}.png").write_bytes(figure.png)
        if arguments.html:
            arguments.html.write_text(page(corpora, summaries, chosen, figures, ablation, regrets), encoding="utf-8")
    except OSError as error:
        fail(f"{error.filename} cannot be written: {error.strerror}")
    for corpus in corpora:
        print(summary_line(corpus, summaries[corpus.name]))
