#!/usr/bin/env python3
"""What the compiler made of the kernels that `jitgemm bench` chose, as a Markdown table. Needs nvdisasm, but no GPU.

  tools/sass_table.py build/release/bin/jitgemm bench/*.csv > sass.md

A row is a kernel: choices that come to the same machine code share it. The instructions of the main loop, and of the
loop that issues TMA loads, are those laid out in it, without the retries of waits, which lie elsewhere. Fails if a
kernel does not compile, spills, uses local memory, or has no tensor-core instruction in its main loop. (wgmma that
ptxas serialises does not compile: jitgemm takes that warning for an error.)
"""

import argparse
import collections
import concurrent.futures
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

sys.dont_write_bytecode = True

from reports.records import BadInput, rep_rows, rows_of  # noqa: E402

LABEL = re.compile(r"([.$\w]+):")
INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(@!?\w+\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;")
LEAVES = ("EXIT", "RET", "BRX", "JMX")
MULTIPLY = {"sm90": r"[HQIB]GMMA\.", "sm80": r"[HIDQ]MMA\."}
LOCAL = r"(STL|LDL)\b"
SIZES = re.compile(r"\b[mnk]=\d+ ?")
HEAD = ["shapes", "problem", "configuration", "registers", "spilled bytes", "local accesses", "main loop's multiplies",
        "instructions", "producer loop's loads", "instructions", "I2F", "MUFU.RCP"]


@dataclass
class Loop:
    wanted: list = field(default_factory=list)  # opcodes
    instructions: int = 0
    lane_loops: int = 0  # around one instruction, once for each lane: what it takes from uniform registers may differ
    local_accesses: int = 0

    def text(self, strip=""):
        counts = collections.Counter(self.wanted).items()
        return ", ".join(f"{count} {opcode}" for opcode, count in counts) or "none"


@dataclass
class Kernel:
    """Those choices that came to the same code."""
    choices: list  # (problem without its sizes, configuration), most chosen first
    shapes: int
    registers: int
    spill_bytes: int
    local_accesses: int
    main: Loop
    producer: Loop
    conversions: int
    reciprocals: int

    def faults(self):
        if self.spill_bytes or self.local_accesses:
            yield (f"spills {self.spill_bytes} bytes and has {self.local_accesses} local accesses, "
                   f"{self.main.local_accesses} in the main loop, {self.producer.local_accesses} in the producer's")
        if not self.main.wanted:
            yield "has no tensor-core instruction in its main loop"

    def cells(self):
        problem, config = self.choices[0]
        others = len(self.choices) - 1
        per = f" ({self.main.instructions / len(self.main.wanted):.1f} each)" if self.main.wanted else ""
        lane_loops = f", {self.producer.lane_loops} in BRA.U.ANY" if self.producer.lane_loops else ""
        return [self.shapes, f"`{problem}`", f"`{config}`" + (f" and {others} more" if others else ""), self.registers,
                self.spill_bytes, self.local_accesses, self.main.text(), f"{self.main.instructions}{per}",
                self.producer.text() + lane_loops, self.producer.instructions, self.conversions, self.reciprocals]


class Code:
    def __init__(self, sass):
        labels, found = {}, []
        for line in sass.splitlines():
            if match := LABEL.match(line):
                labels[match.group(1)] = len(found)
            elif match := INSTRUCTION.match(line):
                found.append(match.groups())
        self.opcodes = [opcode for _, opcode, _ in found]
        self.successors = [[] for _ in found]
        self.predecessors = [[] for _ in found]
        self.back = []  # (target, branch)
        for i, (predicate, opcode, operands) in enumerate(found):
            target = re.fullmatch(r"(.*)`\((.*)\)", operands) if opcode.split(".")[0] == "BRA" else None
            always = target and not predicate and not target.group(1).strip()
            if target and target.group(2) in labels:
                self.link(i, labels[target.group(2)])
                if labels[target.group(2)] <= i and opcode != "BRA.U.ANY":
                    self.back.append((labels[target.group(2)], i))
            if not always and not (opcode.split(".")[0] in LEAVES and not predicate) and i + 1 < len(found):
                self.link(i, i + 1)

    def link(self, begin, end):
        self.successors[begin].append(end)
        self.predecessors[end].append(begin)

    def count(self, pattern, where=None):
        return sum(re.match(pattern, self.opcodes[i]) is not None
                   for i in (range(len(self.opcodes)) if where is None else where))

    @staticmethod
    def reach(edges, begin, may_enter):
        seen, stack = {begin}, [begin]
        while stack:
            for i in edges[stack.pop()]:
                if i not in seen and may_enter(i):
                    seen.add(i)
                    stack.append(i)
        return seen

    def is_loop(self, head, branch):
        """Whether the branch is behind its target on every way: code out of line jumps back too."""
        return branch not in self.reach(self.successors, 0, lambda i: i != head)

    def innermost_loop(self, pattern):
        """Of the loops around what matches `pattern`, that do not hold another such, the one with the most of it."""
        wanted = [i for i, opcode in enumerate(self.opcodes) if re.match(pattern, opcode)]
        around = [(head, branch) for head, branch in self.back
                  if any(head <= i <= branch for i in wanted) and self.is_loop(head, branch)]
        best = Loop()
        for head, branch in around:
            if any(head <= h and b <= branch and (h, b) != (head, branch) for h, b in around):
                continue
            body = self.reach(self.predecessors, branch, lambda i: head < i <= branch) | {head}
            loop = Loop([self.opcodes[i] for i in wanted if i in body], len(body),
                        self.count(r"BRA\.U\.ANY", body), self.count(LOCAL, body))
            best = max(best, loop, key=lambda each: len(each.wanted))
        return best


def read_choices(paths):
    """(problem without its sizes, configuration) -> the problems that chose it, most chosen first."""
    choices = collections.defaultdict(list)
    for path in paths:
        chosen = [row for row in rep_rows(rows_of(path, ["problem", "tuned_config"])) if row["tuned_config"]]
        if not chosen:
            raise BadInput(f"{path} has no tuned configuration: give a file of `jitgemm bench --tuned`")
        for row in chosen:
            choices[SIZES.sub("", row["problem"]).strip(), row["tuned_config"]].append(row["problem"])
    return sorted(choices.items(), key=lambda item: -len(item[1]))


def inspect(jitgemm, cache, choice, problem):
    """(SASS, kernel), or (None, why there is none)."""
    _, config = choice
    common = ["--device", "compile_only", "--arch", "sm_90a", "--problem", problem, "--config", config,
              "--cache-dir", cache]

    def output(*command):
        done = subprocess.run([jitgemm, *command, *common], capture_output=True, text=True, errors="replace")
        if done.returncode != 0:
            raise ValueError((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0])
        return done.stdout

    try:
        sass = output("source", "--format", "sass")
        facts = json.loads(output("explain", "--json"))
    except ValueError as error:  # of json, too
        return None, str(error)
    code = Code(sass)
    multiply = MULTIPLY[config.split()[0]] if "a=f32 " not in problem else r"FFMA"  # f32 has no tensor cores
    return sass, Kernel([choice], 0, facts["registers"], facts["spill_bytes"], code.count(LOCAL),
                        code.innermost_loop(multiply), code.innermost_loop(r"UTMALDG"), code.count(r"I2F\b"),
                        code.count(r"MUFU\.RCP\b"))


def inspect_all(jitgemm, cache, choices, jobs):
    """Kernels by SASS, and those that do not compile as lines."""
    kernels, failed = {}, []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda item: inspect(jitgemm, cache, item[0], item[1][0]), choices)
        for done, ((choice, problems), (sass, found)) in enumerate(zip(choices, results), 1):
            if sys.stderr.isatty():
                print(f"\r{done} of {len(choices)}", end="\n" if done == len(choices) else "", file=sys.stderr)
            if sass is None:
                failed.append(f"`{problems[0]}` `{choice[1]}` does not compile: {found}")
                continue
            if sass in kernels:
                kernels[sass].choices.append(choice)
            kernels.setdefault(sass, found).shapes += len(problems)
    return sorted(kernels.values(), key=lambda kernel: -kernel.shapes), failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jitgemm", help="the command")
    parser.add_argument("csv", nargs="+", type=Path, help="files of `jitgemm bench --tuned`")
    parser.add_argument("--top", type=int, default=40, metavar="N", help="rows to print; all count in the verdict [40]")
    parser.add_argument("--limit", type=int, metavar="N", help="look only at the N most chosen")
    parser.add_argument("--jobs", type=int, default=2, help="kernels to compile at a time [2]")
    parser.add_argument("--cache-dir", help="keep the compiled kernels here [a folder that is removed]")
    arguments = parser.parse_args()
    try:
        jitgemm = shutil.which(arguments.jitgemm)
        if not jitgemm:
            raise BadInput(f"{arguments.jitgemm} is no command: build jitgemm, and give the path of bin/jitgemm")
        if not shutil.which("nvdisasm"):
            raise BadInput("there is no nvdisasm on PATH: add a CUDA toolkit's bin folder")
        choices = read_choices(arguments.csv)[:arguments.limit]
    except BadInput as error:
        sys.exit(f"sass_table.py: error: {error}")

    with tempfile.TemporaryDirectory(prefix="sass-") as cache:
        kernels, failed = inspect_all(jitgemm, arguments.cache_dir or cache, choices, arguments.jobs)
    faulty = [f"`{kernel.choices[0][0]}` `{kernel.choices[0][1]}` {fault}"
              for kernel in kernels for fault in kernel.faults()]

    rule = ["--:"] + ["---"] * 2 + ["--:"] * (len(HEAD) - 3)
    for cells in [HEAD, rule, *(kernel.cells() for kernel in kernels[:arguments.top])]:
        print("| " + " | ".join(map(str, cells)) + " |")
    if len(kernels) > arguments.top:
        print(f"\nThe {arguments.top} most chosen of {len(kernels)}.")
    if failed or faulty:
        print("\n" + "\n".join(f"- {line}" for line in failed + faulty))
    opcodes = [kernel.main.wanted[0] for kernel in kernels if kernel.main.wanted]
    wgmma = sum(re.match(MULTIPLY["sm90"], opcode) is not None for opcode in opcodes)
    shapes = sum(len(problems) for _, problems in choices)
    spilling = sum(kernel.spill_bytes + kernel.local_accesses > 0 for kernel in kernels)
    print(f"\n{len(kernels) + len(failed)} kernels for {shapes} shapes: {wgmma} with wgmma in the main loop, "
          f"{len(opcodes) - wgmma} with mma, {len(kernels) - len(opcodes)} with neither, {spilling} that spill, "
          f"{len(failed)} that do not compile")
    return 1 if failed or faulty else 0


if __name__ == "__main__":
    sys.exit(main())
