"""What the CSV files of `jitgemm bench` hold, as values that reports are made of."""

import csv
import itertools
import math
import sys
from dataclasses import dataclass, field

# Name of a ratio, its column, and the time it is over. The first two are what the project is judged by.
RATIOS = {
    "cublas": "cublas_over_tuned",
    "cublaslt": "cublaslt_over_tuned",
    "model": "cublas_over_model",
    "triton": "triton_over_tuned",
}
REQUIRED = ["m", "n", "k", "device", "problem", "waves", "tuned_us", "tuned_config", "cublas_us", "cublas_over_model",
            "cublas_over_tuned", "cublaslt_over_tuned", "check"]
# The corpora of tools/gpu_check.sh, in the order in which reports have them: a short title, and what the shapes are.
CORPORA = {
    "streamk_aligned8_300": ("f16, multiples of 8", "f16, log-uniform in 128..8192, multiples of 8"),
    "streamk_unaligned_100": ("f16, any integers", "f16, log-uniform in 128..8192, any integers"),
    "fp8_fast": ("fp8", "e4m3, B column-major, D bf16, log-uniform, multiples of 16, fast accumulation"),
    "fp8_promoted": ("fp8, promoted", "the same, promoted accumulation"),
    "llm_decode_49": ("bf16, decoding", "bf16, B column-major, matrices of language models with M of 1..256"),
    "seeds": ("f16, squares", "f16, squares of 256..4096 and three with a deep K"),
    "cuda_l2": ("f16, CUDA-L2's grid", "f16, 120 of the 1000 shapes of CUDA-L2, sizes of 64..16384"),
    "large_f16": ("f16, large", "f16, large"),
    "large_bf16": ("bf16, large", "bf16, B column-major, large"),
    "large_fp8_fast": ("fp8, large", "e4m3, B column-major, D bf16, large, fast accumulation"),
    "large_fp8_promoted": ("fp8, large, promoted", "the same, promoted accumulation"),
}
REP = "rep"  # of protocols the one that early files have alone
ABLATION = ["feature", "corpus", "with_geomean", "without_geomean", "gain", "shapes", "note"]

# Of tiles of 128 x 256 on all SMs; each class ends where the next begins.
WAVE_CLASSES = [("under 0.25 waves", 0.25), ("0.25 to 1 wave", 1), ("1 to 4 waves", 4), ("4 waves and more", math.inf)]
CONFIG_FIELDS = ["tile", "cluster", "consumers", "schedule", "stages", "pack"]
NOT_NAMED = "not named"
BYTES = {"f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "s8": 1, "tf32": 4, "f32": 4, "s32": 4, "f64": 8}
CEILINGS = {1: 1500, 2: 800, 4: 400, 8: 55}  # bytes of an operand's element: 1e12 operations a second, on an H200
BANDWIDTH = 4.2  # TB/s, on an H200


class BadInput(Exception):
    """One line: what is wrong with a file, and the way out."""


@dataclass
class Shape:
    m: int
    n: int
    k: int
    batch: int
    kind: str  # of the problem what is not its sizes
    element_bytes: int  # of A and B
    waves: float
    flop: float
    bytes: float  # read and written once
    tuned_us: float
    cublas_us: float
    config: dict  # CONFIG_FIELDS of the tuned choice
    config_text: str
    speedup: dict = field(default_factory=dict)  # of RATIOS, those that were measured

    @property
    def name(self):
        return f"{self.m}x{self.n}x{self.k}" + (f" batch={self.batch}" if self.batch != 1 else "")

    @property
    def intensity(self):
        return self.flop / self.bytes

    @property
    def wave_class(self):
        return next(i for i, (_, end) in enumerate(WAVE_CLASSES) if self.waves < end)

    def tflops(self, us):
        return self.flop / us * 1e-6


@dataclass
class Corpus:
    name: str
    devices: list
    kinds: list
    shapes: list
    failed: list  # (shape's problem, why)
    default_peer: str  # what stands in the column of cuBLAS
    protocol: str = REP
    file: str = ""  # its name

    def named(self, index):
        """By its file; of another protocol than rep also by that."""
        name = CORPORA.get(self.file, (self.name, ) * 2)[index]
        return name if self.protocol == REP or name == self.name else f"{name}, {self.protocol}"

    @property
    def title(self):
        return self.named(0)

    @property
    def what(self):
        return self.named(1)

    def with_speedup(self, ratio):
        return [shape for shape in self.shapes if ratio in shape.speedup]


def parse_config(text):
    """The words of a configuration in any order; what it leaves out is at its default, which only some words have."""
    config = {"tile": NOT_NAMED, "cluster": "1x1x1", "consumers": "cooperative", "schedule": NOT_NAMED, "stages": NOT_NAMED,
              "pack": "none"}
    main_loop, tile = "", ""
    for word in text.split():
        key, equals, value = word.partition("=")
        if equals:
            if key in config:
                config[key] = value
        elif word[:1].isdigit():
            tile = word
        else:
            main_loop = word
    config["tile"] = " ".join(filter(None, (main_loop, tile))) or NOT_NAMED
    return config


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def rows_of(path, required, comments=False):
    """comments: lines with # before the head are left out."""
    csv.field_size_limit(sys.maxsize)  # the finalists of a shape are one field
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = itertools.dropwhile(lambda line: line.startswith("#"), file) if comments else file
            reader = csv.DictReader(lines, restval="")  # an interrupted run leaves half a line
            names, rows = reader.fieldnames, list(reader)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is no CSV file: {error}") from None
    if not names:
        raise BadInput(f"{path} is empty: give a CSV file with the columns {', '.join(required)}")
    missing = [name for name in required if name not in names]
    if missing:
        raise BadInput(f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}: give a file that has them")
    if not rows:
        raise BadInput(f"{path} has a head and no rows: give the file of a run that went on")
    return rows


def number(path, line, row, column, least_is_zero=False):
    """None where nothing was measured."""
    text = row.get(column)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < math.inf or least_is_zero and value == 0):
        raise BadInput(f"{path}, row {line}: {column} is \"{text}\", which is no positive number: measure the shape again")
    return value


def bytes_of(path, line, words, m, n, k, batch):
    """Of one of A's elements; of all matrices, each read or written once."""
    size = {}
    for operand in "abd":
        name = words.get(operand)
        if name not in BYTES:
            raise BadInput(f"{path}, row {line}: the problem's {operand}= is \"{name}\": write one of {', '.join(BYTES)}")
        size[operand] = BYTES[name]
    size["c"] = max(2, size["d"])  # of e4m3 and e5m2 it is bf16
    elements = {"a": m * k, "b": k * n, "d": m * n, "c": m * n if "beta" in words else 0}
    copies = {x: 1 if words.get(f"stride_{x}") == "0" else batch for x in elements}
    return size["a"], float(sum(elements[x] * copies[x] * size[x] for x in elements))


def shape_of(path, line, row):
    def value(column, least_is_zero=False):
        return number(path, line, row, column, least_is_zero)

    sizes = [value(name) for name in "mnk"]
    waves = value("waves", least_is_zero=True)
    if None in sizes or waves is None:
        raise BadInput(f"{path}, row {line}: m, n, k or waves is missing: measure the shape again")
    m, n, k = map(int, sizes)
    words = dict(word.partition("=")[::2] for word in row["problem"].split())
    batch = words.get("batch", "1")
    if not batch.isdigit() or int(batch) == 0:
        raise BadInput(f"{path}, row {line}: the problem's batch= is \"{batch}\": write a positive number")
    batch = int(batch)
    element_bytes, total_bytes = bytes_of(path, line, words, m, n, k, batch)
    kind = " ".join(f"{key}={text}" for key, text in words.items()
                    if key not in ("m", "n", "k", "batch") and not key.startswith(("align_", "ld", "stride_")))
    speedup = {ratio: value(column) for ratio, column in RATIOS.items()}
    return Shape(m, n, k, batch, kind, element_bytes, waves, 2.0 * m * n * k * batch, total_bytes, value("tuned_us"),
                 value("cublas_us"), parse_config(row["tuned_config"]), row["tuned_config"],
                 {ratio: x for ratio, x in speedup.items() if x is not None})


def protocol_of(row):
    return row.get("protocol") or REP


def protocols_of(rows):
    """rep first."""
    return sorted({protocol_of(row) for row in rows}, key=lambda protocol: (protocol != REP, protocol))


def rep_rows(rows):
    """Those of launches of one arm back to back; all of a file that has no others."""
    return [row for row in rows if protocol_of(row) == REP] or rows


def read_corpora_of(path):
    """A corpus a protocol, rep first."""
    rows = list(enumerate(rows_of(path, REQUIRED), 2))
    return [corpus_of(path, protocol, [(line, row) for line, row in rows if protocol_of(row) == protocol])
            for protocol in protocols_of(row for _, row in rows)]


def corpus_of(path, protocol, rows):
    """The rows that were checked and timed on a GPU."""
    failed = [(row["problem"], row["check"] or "was not checked") for _, row in rows if row["check"] != "ok"]
    timed = [(line, row) for line, row in rows
             if row["check"] == "ok" and row["device"] != "emulator" and row["tuned_us"]]
    if not timed:
        raise BadInput(f"{path} has no row whose tuned choice was checked and timed on a GPU: run `jitgemm bench` on one")
    shapes = [shape_of(path, line, row) for line, row in timed]
    first = all((row.get("cublas_config") or "").startswith("first candidate") for _, row in timed)
    name = path.stem if protocol == REP else f"{path.stem}_{protocol.replace(' ', '_')}"
    return Corpus(name, sorted({row["device"] for _, row in timed}), sorted({shape.kind for shape in shapes}), shapes,
                  failed, "cuBLASLt's first candidate" if first else "cuBLAS default", protocol, path.stem)


@dataclass
class Files:
    """The CSV files of a folder that tools/gpu_check.sh has filled."""
    corpora: list
    ablation: object  # a path, or None
    regret: object


def files_of(folder):
    found = {path.stem: path for path in folder.glob("*.csv")}
    ablation, regret = found.pop("ablation", None), found.pop("regret", None)
    if not found:
        raise BadInput(f"{folder} has no CSV files of `jitgemm bench`: give a folder that tools/gpu_check.sh has filled")
    known = [name for name in CORPORA if name in found]
    return Files([found[name] for name in known + sorted(set(found) - set(known))], ablation, regret)


def read_corpora(paths):
    corpora = [(path, corpus) for path in paths for corpus in read_corpora_of(path)]
    names = [corpus.name for _, corpus in corpora]
    for path, corpus in corpora:
        if names.count(corpus.name) > 1:
            corpus.name = corpus.file = f"{path.resolve().parent.name}_{corpus.name}"
    corpora = [corpus for _, corpus in corpora]
    if len({corpus.name for corpus in corpora}) < len(corpora):
        raise BadInput("two of the CSV files have the same name: rename one")
    return corpora


def read_ablation(path):
    """The rows as text, with `percent`: the gain, from the geometric means where both are there."""
    rows = rows_of(path, ABLATION)
    for line, row in enumerate(rows, 2):
        on, off = (number(path, line, row, f"{what}_geomean") for what in ("with", "without"))
        row["percent"] = 100 * (on / off - 1) if on and off else None
    return rows
