"""What a record of tools/gpu_check.sh says, as the page tools/results/README.md.

  tools/report.py record FOLDER [--check] [--no-picture]

FOLDER has summary.txt and the CSV files. The page goes beside the folder, as README.md, and its picture to
FOLDER/plots/overview.png. With --check nothing is written: it fails unless both say what the files say, and needs no
matplotlib.
"""

import argparse
import re
import struct
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from reports import figures
from reports.corpora import summary_line
from reports.markdown import table
from reports.protocols import protocols_table
from reports.records import BadInput, RATIOS, REP, files_of, geomean, read_ablation, read_corpora
from reports.regret import percentile, read_regrets, title_of
from reports.statistics import by_waves, summarise

MAIN_LOOPS = {"sm80": "portable", "sm90": "Hopper"}


@dataclass
class Run:
    """One run of tools/gpu_check.sh, or several put together, as summary.txt has it."""
    title: str
    facts: dict = field(default_factory=dict)  # date, commit, device, ...
    peers: list = field(default_factory=list)
    first_calls: list = field(default_factory=list)  # (main loop, cold or warm, ms)
    host_times: list = field(default_factory=list)  # (schedule, bare launch us, gemm() us)
    rows: list = field(default_factory=list)  # of its tables: (stage, seconds, result)

    def means(self):
        """corpus -> ratio -> geometric mean"""
        found = {}
        for stage, _, result in self.rows:
            if stage.startswith("bench "):
                ratios = re.findall(r"; ([a-z ]+ / [a-z]+) ([\d.]+)", result)
                found[stage.removeprefix("bench ")] = dict(ratios)
        return found


def main_loop(config):
    return MAIN_LOOPS.get(config.split()[0], config.split()[0])


def read_summary(path):
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    runs, title, in_table = [], "", False
    for line in lines:
        if line.startswith("date "):
            runs.append(Run(title))
        if line.startswith("=="):
            title, in_table = line.strip("= "), line == "== table"
            continue
        if not runs:
            continue
        run = runs[-1]
        if found := re.match(r"(date|commit|digest|device|library|toolkit|system) +(.*)", line):
            run.facts.setdefault(found[1], found[2])
        elif found := re.match(r"first call, (cold|warm) kernel cache: ([\d.]+) ms \((.*)\)", line):
            run.first_calls.append((main_loop(found[3]), found[1], float(found[2])))
        elif found := re.match(r"host time of a call: bare launch ([\d.]+) us, gemm\(\) ([\d.]+) us \((.*)\)", line):
            run.host_times.append((f"{main_loop(found[3])}, {re.search('schedule=([a-z_]+)', found[3])[1]}",
                                   float(found[1]), float(found[2])))
        elif found := re.match(r"peer: (.*)", line):
            run.peers += [peer for peer in found[1].split(", ") if peer not in run.peers]
        elif in_table and (found := re.match(r"(\S.*?) +(\d+) s  (.*)", line)):
            run.rows.append((found[1], int(found[2]), found[3]))
    if not runs or not runs[0].rows:
        raise BadInput(f"{path} has no run: give the folder that tools/gpu_check.sh has filled")
    return runs


@dataclass
class Record:
    folder: Path
    runs: list
    corpora: list  # by rep
    all_corpora: list  # by every protocol
    ablation: list
    regrets: dict
    summaries: dict  # corpus -> ratio -> Summary or None


def read_record(folder):
    files = files_of(folder)
    corpora = read_corpora(files.corpora)
    rep = [corpus for corpus in corpora if corpus.protocol == REP]
    return Record(folder, read_summary(folder / "summary.txt"), rep or corpora, corpora,
                  read_ablation(files.ablation) if files.ablation else [],
                  read_regrets(files.regret) if files.regret else {},
                  {c.name: {ratio: summarise(c.shapes, ratio) for ratio in RATIOS} for c in corpora})


def peer_name(peer):
    """cuBLAS 130100 -> cuBLAS 13.1"""
    return re.sub(r"\b(\d\d)(\d\d)\d\d$", lambda number: f"{number[1]}.{int(number[2])}", peer)


def head_section(record):
    run = record.runs[0]
    device, driver, *_ = run.facts["device"].split(", ")
    toolkit = run.facts.get("toolkit", "unknown").split(",")[0]
    peers = ", ".join(peer for peer in map(peer_name, run.peers) if not peer.endswith("kernels"))
    name = record.folder.name
    text = (f"One {device}, driver {driver}, CUDA {toolkit}, commit {run.facts['commit']}, {run.facts['date'][:10]}; peers "
            f"of the same run: {peers}. A ratio is the peer's time over ours: above 1 jitgemm is faster. \"Tuned\" is the "
            "autotuner's choice, \"model\" the cost model's, which measures nothing. Means are geometric, intervals 95 % by "
            "bootstrap over the shapes; p5 and the worst are measured shapes.")
    return f"""# What was measured
Written by `tools/report.py record tools/results/{name}` from the files of [{name}]({name}); a test compares.

{textwrap.fill(text, width=120, break_on_hyphens=False)}

![The speed-up of each corpus over cuBLAS default and over the best cuBLASLt candidate]({name}/plots/overview.png)
"""


def behind(record, ratio, peer):
    """How many shapes are slower than a peer, and which most; empty where it was not timed."""
    shapes = [(shape.speedup[ratio], shape.name, corpus.title) for corpus in record.corpora
              for shape in corpus.with_speedup(ratio)]
    count = sum(speedup < 1 for speedup, _, _ in shapes)
    if not count:
        return [f"none is slower than {peer}"] if shapes else []
    speedup, name, title = min(shapes)
    return [f"{count} {'is' if count == 1 else 'are'} slower than {peer}, at worst {speedup:.3f} ({name}, {title})"]


def first_page(record):
    """The sentences that README.md quotes."""
    run = record.runs[0]
    sentences = []
    mixed = {corpus.file: record.summaries[corpus.name]["cublas"] for corpus in record.all_corpora if corpus.protocol == "mix"}
    first = [corpus for corpus in record.corpora[:5] if record.summaries[corpus.name]["cublas"]]
    both = all(corpus.protocol == REP and mixed.get(corpus.file) for corpus in first)
    means = [" and ".join(f"{summary.geomean:.3f}" for summary in
                          (record.summaries[corpus.name]["cublas"], mixed.get(corpus.file) if both else None) if summary)
             + f" ({corpus.title})" for corpus in first]
    if means:
        protocols = ", back to back and between small kernels of someone else's" if both else ""
        sentences.append(f"Speed-up over cuBLAS on one {run.facts['device'].split(', ')[0]}, geometric means{protocols}: {', '.join(means)}.")
    lags = behind(record, "cublas", "cuBLAS") + behind(record, "cublaslt", "cuBLASLt's best candidate")
    if lags:
        sentences.append(f"Of {sum(len(c.shapes) for c in record.corpora)} shapes {'; '.join(lags)}.")
    if run.host_times:
        sentences.append(f"A warm call costs the host {span([gemm - bare for _, bare, gemm in run.host_times], '{:.2f}')} us "
                         "more than the bare launch.")
    cold, warm = ([ms for _, state, ms in run.first_calls if state == which] for which in ("cold", "warm"))
    if cold and warm:
        sentences.append(f"The first call of a process takes {span(cold)} ms with nothing cached, and {span(warm)} ms when its "
                         "kernel is on disk.")
    return sentences


def first_page_section(record):
    return "## In short\nWhat the first page quotes.\n\n" + "\n".join(f"- {each}" for each in first_page(record)) + "\n"


def ratio_lines(record, ratio):
    lines = []
    for corpus in record.corpora:
        s = record.summaries[corpus.name][ratio]
        if s:
            interval = "" if s.low is None else f"{s.low:.3f} to {s.high:.3f}"
            lines.append([corpus.what, str(s.count), f"**{s.geomean:.3f}**", interval, f"{s.p5.speedup[ratio]:.3f}",
                          str(s.count - s.ahead), f"{s.worst.speedup[ratio]:.3f}", s.worst.name])
    return lines


def peers_section(record):
    head = ["corpus", "shapes", "mean", "interval", "p5", "shapes behind", "worst", "its shape"]
    parts = []
    for title, ratio in (("Tuned over cuBLAS default", "cublas"),
                         ("Tuned over the best of cuBLASLt's candidates", "cublaslt"),
                         ("The model's choice over cuBLAS default", "model"),
                         ("Tuned over the kernel of Triton's tutorial", "triton")):
        lines = ratio_lines(record, ratio)
        if lines:
            parts.append(f"## {title}\n" + table(head, lines, (0, 7)))
    first = [c.what for c in record.corpora if c.default_peer != "cuBLAS default"]
    note = "\ncublasGemmEx cannot compute e4m3: there \"cuBLAS default\" is cuBLASLt's first candidate.\n" if first else ""
    return "\n".join(parts) + note


def protocols_section(record):
    return protocols_table(record.all_corpora)


def waves_section(record):
    ratios = ("cublas", "cublaslt", "model")
    corpus = max(record.corpora, key=lambda c: len(c.shapes))
    lines = [[name, str(count), *(f"{mean:.3f}" if mean else "" for mean in means)]
             for name, count, means in by_waves(corpus.shapes, ratios)]
    return (f"## By size\n{corpus.what}, by waves of 128 x 256 tiles.\n\n"
            + table(["waves", "shapes", "tuned / cuBLAS", "tuned / best cuBLASLt", "model / cuBLAS"], lines))


def microseconds(us):
    return f"{us:.0f}" if us >= 1000 else f"{us:.4g}"


def large_section(record):
    lines = []
    for corpus in record.corpora:
        if corpus.name.startswith("large_"):
            lines += [[corpus.title, s.name, microseconds(s.tuned_us), f"{s.tflops(s.tuned_us):.0f}",
                       *(f"{s.speedup[ratio]:.3f}" if ratio in s.speedup else "" for ratio in ("cublas", "cublaslt"))]
                      for s in corpus.shapes]
    head = ["", "shape", "us", "TFLOP/s", "over cuBLAS", "over best cuBLASLt"]
    text = "## Large shapes, one by one\nThey live at the power limit, and cards differ there.\n\n"
    return text + table(head, lines, (0, 1)) if lines else ""


def again_section(record):
    """Later runs that timed the same choices with other kernels."""
    parts = []
    ratios = ("cublas / tuned", "cublas / model", "cublaslt best / tuned")
    for run in record.runs[1:]:
        means = run.means()
        lines = [[c.what, *(means[c.name].get(ratio, "") for ratio in ratios)] for c in record.corpora if c.name in means]
        if lines:
            title = run.title[:1].upper() + run.title[1:]
            parts.append(f"## Commit {run.facts['commit']}\n{title}.\n\n"
                         + table(["corpus", "tuned / cuBLAS", "model / cuBLAS", "tuned / best cuBLASLt"], lines))
    return "\n".join(parts)


def regret_section(record):
    if not record.regrets:
        return ""
    lines = []
    for (name, protocol), pairs in record.regrets.items():
        values = [regret for regret, _ in pairs]
        worst, shape = max(pairs)
        lines.append([title_of(name, protocol), str(len(values)), f"{geomean(values):.3f}", f"{percentile(values, 0.95):.3f}",
                      f"{worst:.3f}", shape])
    head = ["choice", "shapes", "mean", "p95", "worst", "its shape"]
    return ("## How far choices are from the best known\nThe time of a choice over the least of all that was timed in the last "
            "round, on shapes that nothing was fitted to.\n\n" + table(head, lines, (0, 5)))


def ablation_section(record):
    if not record.ablation:
        return ""
    corpora = list(dict.fromkeys(row["corpus"] for row in record.ablation))
    gain = {(row["feature"], row["corpus"]): row["percent"] for row in record.ablation}
    lines = []
    for feature in dict.fromkeys(row["feature"] for row in record.ablation):
        percents = [gain.get((feature, corpus)) for corpus in corpora]
        lines.append([feature, *("" if percent is None else f"{percent:+.1f} %" for percent in percents)])
    return ("## What each feature is worth\nThe gain of the fastest of the model's first candidates over the fastest without "
            "the feature.\n\n" + table(["feature", *corpora], lines))


def span(values, form="{:.3g}"):
    texts = [form.format(x) for x in (min(values), max(values))]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def latency_section(record):
    run = record.runs[0]
    parts = []
    if run.first_calls:
        lines = []
        for loop in dict.fromkeys(loop for loop, _, _ in run.first_calls):
            of = lambda state: [ms for l, s, ms in run.first_calls if (l, s) == (loop, state)]
            lines.append([loop, *(span(of(state)) + " ms" if of(state) else "" for state in ("cold", "warm"))])
        parts.append("## The first call of a process\nFrom making a Context to the end of a product of 1024x1024x1024 in f16 by a\n"
                     "named configuration; each in a process of its own, in this order.\n\n"
                     + table(["main loop", "nothing cached", "kernel cached on disk"], lines))
    if run.host_times:
        lines = [[what, f"{bare:.2f} us", f"{gemm:.2f} us", f"{gemm - bare:.2f} us"] for what, bare, gemm in run.host_times]
        parts.append("## A warm call\nThe host's time for a call, beside a bare launch of the same kernel: "
                     f"{span([gemm - bare for _, bare, gemm in run.host_times], '{:.2f}')} us more.\n\n"
                     + table(["kernel", "bare launch", "gemm()", "more"], lines))
    return "\n".join(parts)


def stages_section(record):
    rows = [row for row in record.runs[0].rows if row[0] != "all"]
    lines = [[stage, f"{seconds} s", result.partition(";")[0]] for stage, seconds, result in rows]
    return "## The stages\n" + table(["stage", "time", "result"], lines, (0, 2))


def method_section(record):
    name = record.folder.name
    return f"""## How it was measured
`tools/gpu_check.sh` on one card, its clocks left alone. Configurations were tuned first, with the default budget, and
timed in a fresh process: cold L2, a warm card, the arms of a shape in an order drawn for each round, medians. Kernels
are launched back to back, and ours start early (programmatic dependent launch), so that what a kernel does before it
touches memory hides behind the one before; cuBLAS's kernels do not do that. `jitgemm bench --no-dependent-launch` times
without.

Each shape, the roofline and the chosen configurations, as one page that refers to nothing else (needs matplotlib):

    tools/report.py corpora tools/results/{name} --html report.html

The digest in [summary.txt]({name}/summary.txt) says which kernels the record is of. Kernels that have changed since need
another record, or a line in {name}/waiver that says what it does not cover; a test holds them to it.
"""


OTHERS = [
    ("NOTES.md", "the notebook: what was tried, predicted and learnt"),
    ("{}/ncu.md", "what limits the kernels, by Nsight Compute"),
    ("{}/sass.md", "their machine code: loops, registers, spills"),
    ("h200/types.md", "every type, layout and epilogue beside its peers, half of the shapes for some"),
    ("h100/types.md", "the same on an H100, older kernels"),
    ("h200/epilogues/table.md", "epilogues of one's own beside the product alone, what is built in, and cuBLASLt"),
    ("h100/summary.txt", "what an H100 reaches, and where it falls short"),
    ("{}/candidates.md", "registers and spills of every candidate of the portable loop on every architecture, by NVRTC alone"),
    ("{}/tests.log", "the GPU tests"),
    ("seeds.md", "the seed documents' own numbers beside ours, older kernels"),
    ("product.log", "every combination of choices on the GPU, once"),
    ("removals.log", "every barrier, fence, wait and mask removed in turn, and the test that noticed"),
    ("faults.md", "what a user sees when a call of the driver or the compiler fails"),
    ("fuzzing.md", "hours of fuzzing"),
]


def others_section(record):
    lines = [[f"[{path}]({path})", what] for path, what in ((path.format(record.folder.name), what) for path, what in OTHERS)
             if (record.folder.parent / path).exists()]
    return "## Other records\n" + "\n".join(f"- {link}: {what}" for link, what in lines) + "\n"


SECTIONS = [head_section, first_page_section, protocols_section, peers_section, waves_section, large_section, again_section, regret_section,
            ablation_section, latency_section, stages_section, method_section, others_section]


def page(record):
    return "\n".join(filter(None, (section(record) for section in SECTIONS)))


def description(record):
    """What the picture shows, as text that is kept in its file."""
    return "\n".join(summary_line(corpus, record.summaries[corpus.name]) for corpus in record.all_corpora)


def png_text(path, keyword):
    """A text chunk of a PNG file; None if it has none."""
    data, at = path.read_bytes(), 8
    while at + 8 <= len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        key, _, text = data[at + 8:at + 8 + length].partition(b"\0")
        if kind == b"tEXt" and key == keyword.encode():
            return text.decode("latin-1")
        at += length + 12
    return None


def main(argv):
    parser = argparse.ArgumentParser(prog="report.py record", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; fail unless page and picture are up to date")
    parser.add_argument("--no-picture", action="store_true", help="the page alone; needs no matplotlib")
    arguments = parser.parse_args(argv)
    folder = arguments.folder.resolve()
    out, picture = folder.parent / "README.md", folder / "plots/overview.png"
    try:
        record = read_record(folder)
    except BadInput as error:
        sys.exit(f"report.py: error: {error}")
    text = page(record)
    if arguments.check:
        again = f"run `tools/report.py record {arguments.folder}`"
        if not out.exists() or out.read_text(encoding="utf-8") != text:
            sys.exit(f"report.py: error: {out} is not what the files of {arguments.folder} say: {again}")
        if not arguments.no_picture and (not picture.exists() or png_text(picture, "Description") != description(record)):
            sys.exit(f"report.py: error: {picture} was drawn from other files: {again}, which needs matplotlib")
        return
    try:
        out.write_text(text, encoding="utf-8")
        print(out)
        if not arguments.no_picture:
            picture.parent.mkdir(exist_ok=True)
            figure = figures.overview(figures.style(), record.all_corpora, record.summaries, description(record))
            picture.write_bytes(figure.png)
            print(picture)
    except OSError as error:
        sys.exit(f"report.py: error: {error.filename} cannot be written: {error.strerror}")
