#!/usr/bin/env python3
"""Whether two builds of jitgemm make the same machine code of the kernels that `jitgemm bench` chose, as Markdown. Needs
nvdisasm, but no GPU.

  tools/sass_diff.py old/bin/jitgemm build/release/bin/jitgemm tools/results/h200/*_*.csv > sass_diff.md

The kernels are those of the model's and the tuned choices, and of the packing before them; choices with one source in the
old build are one kernel. Labels count by their order, addresses not at all. What differs is told apart by how far it
goes: only in where the kernel's parameters lie, in registers and operands, or in the instructions themselves. Fails if a
kernel does not compile.
"""

import argparse
import collections
import concurrent.futures
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True

from reports.records import BadInput, rep_rows, rows_of  # noqa: E402
from sass_table import INSTRUCTION, LABEL, LOCAL, MULTIPLY, SIZES, Code  # noqa: E402

PARAMETER = re.compile(r"\bcx?\[(0x0|UR\d+)\]\[(\S+?)\]")
TARGET = re.compile(r"`\(([^)]*)\)")
IDENTICAL, PARAMETERS, OPERANDS, INSTRUCTIONS = range(4)
CLASSES = ["identical", "the same but for where parameters lie", "the same instructions with other registers or operands",
           "other instructions"]
HEAD = ["shapes", "problem", "configuration", "kernel", "instructions", "main loop", "producer's loop", "registers",
        "spilled bytes", "what there is more or less of"]


@dataclass
class Choice:
    """A kernel of the old build, by the first of the calls that use it."""
    problem: str
    config: str
    kernel: str  # gemm or packing
    shapes: int = 1


@dataclass
class Side:
    code: Code
    lines: list
    registers: int
    spill_bytes: int


def without_padding(sass):
    """The lines without the NOP that fill the last 128 bytes, so that counts are of what may run."""
    lines = sass.splitlines()
    found = [(i, match.group(2)) for i, line in enumerate(lines) if (match := INSTRUCTION.match(line))]
    while found and found[-1][1] == "NOP":
        lines[found.pop()[0]] = ""
    return "\n".join(lines)


def numbered(pattern, lines, form):
    """The lines with what the pattern finds replaced by its number in the order of first appearance."""
    numbers = {}
    return [pattern.sub(lambda match: form.format(numbers.setdefault(match.group(0), len(numbers))), line) for line in lines]


def instructions(sass):
    """One line an instruction or label, without addresses and names of labels."""
    lines = []
    for line in sass.splitlines():
        if match := LABEL.match(line):
            lines.append(f"`({match.group(1)})")
        elif match := INSTRUCTION.match(line):
            lines.append(" ".join(filter(None, (part and part.strip() for part in match.groups()))))
    return numbered(TARGET, lines, "label {}")


def difference(old, new):
    if old.lines == new.lines:
        return IDENTICAL
    if numbered(PARAMETER, old.lines, "parameter {}") == numbered(PARAMETER, new.lines, "parameter {}"):
        return PARAMETERS
    return OPERANDS if old.code.opcodes == new.code.opcodes else INSTRUCTIONS


def read_choices(paths):
    """(problem without its sizes, configuration) -> the problems that chose it."""
    choices = collections.defaultdict(list)
    for path in paths:
        for row in rep_rows(rows_of(path, ["problem", "model_config", "tuned_config"])):
            for config in {row["model_config"], row["tuned_config"]} - {""}:
                choices[SIZES.sub("", row["problem"]).strip(), config].append(row["problem"])
    if not choices:
        raise BadInput("the CSV files have no choices: give files of `jitgemm bench`")
    return choices


class Build:
    def __init__(self, command, cache):
        self.command = shutil.which(command)
        if not self.command:
            raise BadInput(f"{command} is no command: build jitgemm, and give the path of bin/jitgemm")
        self.cache = cache

    def output(self, *words):
        done = subprocess.run([self.command, *words, "--device", "compile_only", "--arch", "sm_90a", "--cache-dir", self.cache],
                              capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise ValueError((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0])
        return done.stdout

    def source(self, choice, form):
        return self.output("source", "--format", form, "--kernel", choice.kernel, "--problem", choice.problem,
                           "--config", choice.config)

    def side(self, choice):
        sass = without_padding(self.source(choice, "sass"))
        facts = {"registers": 0, "spill_bytes": 0}  # which explain says of the GEMM kernel
        if choice.kernel == "gemm":
            facts = json.loads(self.output("explain", "--json", "--problem", choice.problem, "--config", choice.config))
        return Side(Code(sass), instructions(sass), facts["registers"], facts["spill_bytes"])


def unique_kernels(build, choices, pool):
    """Choices by their source, and those that have none as lines."""
    asked = [Choice(problems[0], config, kernel, len(problems)) for (_, config), problems in choices.items()
             for kernel in (["gemm", "packing"] if "pack=" in config else ["gemm"])]

    def source(choice):
        try:
            return build.source(choice, "cuda"), None
        except ValueError as error:
            return None, f"`{choice.problem}` `{choice.config}`: old: {error}"

    kernels, failed = {}, []
    for choice, (text, failure) in zip(asked, pool.map(source, asked)):
        if failure:
            failed.append(failure)
        elif text in kernels:
            kernels[text].shapes += choice.shapes
        else:
            kernels[text] = choice
    return list(kernels.values()), failed


def compare(old, new, choice):
    """(class, old side, new side), or a line that says why there is none."""
    sides = []
    for name, build in (("old", old), ("new", new)):
        try:
            sides.append(build.side(choice))
        except ValueError as error:  # of json, too
            return f"`{choice.problem}` `{choice.config}`: {name}: {error}"
    return difference(*sides), *sides


def change(old, new):
    return str(old) if old == new else f"{old} -> {new}"


def opcode_changes(old, new):
    """Most changed first, as `+3 FMUL, -3 FFMA`."""
    before, after = collections.Counter(old.code.opcodes), collections.Counter(new.code.opcodes)
    changes = {opcode: after[opcode] - before[opcode] for opcode in before | after if after[opcode] != before[opcode]}
    ordered = sorted(changes.items(), key=lambda item: (-abs(item[1]), item[0]))
    return ", ".join(f"{count:+} {opcode}" for opcode, count in ordered[:8]) + (", ..." if len(ordered) > 8 else "") or "order"


def cells(choice, old, new):
    multiply = "FFMA" if "a=f32 " in choice.problem else MULTIPLY[choice.config.split()[0]]
    loops = [change(*(side.code.innermost_loop(pattern).instructions for side in (old, new)))
             for pattern in (multiply, "UTMALDG")]
    return [choice.shapes, f"`{choice.problem}`", f"`{choice.config}`", choice.kernel,
            change(len(old.code.opcodes), len(new.code.opcodes)), *loops, change(old.registers, new.registers),
            change(old.spill_bytes + old.code.count(LOCAL), new.spill_bytes + new.code.count(LOCAL)), opcode_changes(old, new)]


def report(compared, failed, top):
    counts = collections.Counter(kind for _, (kind, _, _) in compared)
    for kind, name in enumerate(CLASSES):
        print(f"- {counts[kind]} of {len(compared)} kernels: {name}")
    growth = [(len(new.code.opcodes) / len(old.code.opcodes), choice, old, new)
              for choice, (kind, old, new) in compared if kind == INSTRUCTIONS]
    if growth:
        growth.sort(key=lambda item: -abs(item[0] - 1))
        print(f"\nInstructions of those that have others: {min(growth, key=lambda x: x[0])[0]:.4f} to "
              f"{max(growth, key=lambda x: x[0])[0]:.4f} of the old count.\n")
        for row in [HEAD, ["--:", *["---"] * 3, *["--:"] * 5, "---"], *(cells(*item[1:]) for item in growth[:top])]:
            print("| " + " | ".join(map(str, row)) + " |")
        if len(growth) > top:
            print(f"\nThe {top} that changed most of {len(growth)}.")
    if failed:
        print("\n" + "\n".join(f"- does not compile: {line}" for line in failed))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the command of the old build")
    parser.add_argument("new", help="and of the new one")
    parser.add_argument("csv", nargs="+", type=Path, help="files of `jitgemm bench`")
    parser.add_argument("--sample", type=int, default=200, metavar="N", help="kernels to compare, 0 for all [200]")
    parser.add_argument("--seed", type=int, default=1, help="of the sample [1]")
    parser.add_argument("--top", type=int, default=40, metavar="N", help="rows to print [40]")
    parser.add_argument("--jobs", type=int, default=2, help="kernels to compile at a time [2]")
    parser.add_argument("--cache-dir", help="keep the compiled kernels here [a folder that is removed]")
    arguments = parser.parse_args()
    try:
        if not shutil.which("nvdisasm"):
            raise BadInput("there is no nvdisasm on PATH: add a CUDA toolkit's bin folder")
        with tempfile.TemporaryDirectory(prefix="sass-") as folder, \
                concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            cache = Path(arguments.cache_dir or folder)
            old, new = Build(arguments.old, str(cache / "old")), Build(arguments.new, str(cache / "new"))
            kernels, failed = unique_kernels(old, read_choices(arguments.csv), pool)
            found = len(kernels)
            if 0 < arguments.sample < found:
                kernels = random.Random(arguments.seed).sample(kernels, arguments.sample)
            results = list(pool.map(lambda choice: compare(old, new, choice), kernels))
    except BadInput as error:
        sys.exit(f"sass_diff.py: error: {error}")
    print(f"{len(kernels)} of {found} kernels" + (f", drawn with seed {arguments.seed}" if len(kernels) < found else "") + "\n")
    failed += [result for result in results if isinstance(result, str)]
    report([pair for pair in zip(kernels, results) if not isinstance(pair[1], str)], failed, arguments.top)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
