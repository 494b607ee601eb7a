"""One corpus by several protocols, row below row, as a table of a page."""

from reports.markdown import table
from reports.records import REP
from reports.statistics import summarise


def with_protocols(all_corpora):
    """The corpora of each file with more than rep, rep first."""
    found = {}
    for corpus in all_corpora:
        found.setdefault(corpus.file, []).append(corpus)
    return [corpora for corpora in found.values() if any(corpus.protocol != REP for corpus in corpora)]


def small_shapes(corpora):
    """For each the shapes whose tuned time is below 5 us; in the first of them, so that all are about the same shapes."""
    names = {shape.name for shape in corpora[0].shapes if shape.tuned_us < 5}
    return [[shape for shape in corpus.shapes if shape.name in names] for corpus in corpora]


def protocol_cells(shapes):
    cells = []
    for ratio in ("cublas", "cublaslt"):
        s = summarise(shapes, ratio)
        if not s:
            cells += [""] * 3
            continue
        interval = "" if s.low is None else f" [{s.low:.3f}, {s.high:.3f}]"
        cells += [f"**{s.geomean:.3f}**{interval}", f"{s.p5.speedup[ratio]:.3f}",
                  f"{s.worst.speedup[ratio]:.3f} ({s.worst.name})"]
    return cells


def protocols_table(all_corpora):
    """Empty where there is rep alone."""
    lines = []
    for corpora in with_protocols(all_corpora):
        title = corpora[0].what.removesuffix(f", {corpora[0].protocol}")
        lines += [[title if i == 0 else "", corpus.protocol, str(len(corpus.shapes)), *protocol_cells(corpus.shapes)]
                  for i, corpus in enumerate(corpora)]
        small = small_shapes(corpora)
        if small[0] and len(small[0]) < len(corpora[0].shapes):
            lines += [["- of these below 5 us" if i == 0 else "", corpus.protocol, str(len(shapes)), *protocol_cells(shapes)]
                      for i, (corpus, shapes) in enumerate(zip(corpora, small))]
    if not lines:
        return ""
    head = ["corpus", "protocol", "shapes", "over cuBLAS default", "p5", "worst", "over best cuBLASLt", "p5", "worst"]
    return ("## Back to back, and between kernels of strangers\nThe tuned choice by two protocols. rep: launches of one arm back "
            "to back. mix: between any two of them a\nsmall kernel of someone else's, which starts nothing early; its own time, "
            "measured alike, is taken off. What is below\n5 us is by the tuned time in the first row.\n\n"
            + table(head, lines, (0, 1, 5, 8)))
