#!/usr/bin/env python3
"""Removes each barrier, fence, wait, mask, release and rotation of the templates in turn, and fails unless a test notices.

  tools/removal.py --list                            what would be removed
  tools/removal.py --tests build/bin/tests --all     everything (minutes)
  tools/removal.py --tests build/bin/tests --sample 8 --seed $(git rev-parse 'HEAD^{tree}')

Each removal is made in a copy of templates/, which the generator reads instead of its embedded files
(JITGEMM_TEMPLATES_DIR). The tests tagged [removal] run small kernels on the emulator in many adversarial orders. What the
first test binary does not notice is given to the next one: list one built with sanitizers last.
"""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "templates"
# Each file, and the tags of the tests that go through it.
FILES = {"mainloop_sm80.cuh": ["sm80", "groups"], "operand_loader_sm80.cuh": ["sm80", "groups"],
         "mainloop_sm90.cuh": ["sm90", "cluster", "ping_pong", "cluster_sum", "groups", "block_scales", "along_k",
                               "parallel"],
         "producer_sm90.cuh": ["sm90", "cluster", "ping_pong", "cluster_sum", "groups", "block_scales", "along_k",
                               "parallel"],
         "multiply_sm90.cuh": ["sm90", "ping_pong", "cluster_sum", "groups", "block_scales", "along_k", "parallel"],
         "work_queue_sm90.cuh": ["groups", "along_k"],
         "cluster_sum.cuh": ["cluster_sum"], "store_sm90.cuh": ["store", "groups"],
         "staged_matrices.cuh": ["own_epilogues", "sm90"], "fixup.cuh": ["sm80", "sm90", "cluster_sum"],
         "groups.cuh": ["groups", "along_k"], "group_ends_sm90.cuh": ["along_k"],
         "epilogue.cuh": ["sm80", "sm90"], "work_tile.cuh": ["sm80", "sm90", "store"], "pack.cuh": ["pack"],
         "check.cuh": ["check"], "shards_sm90.cuh": ["parallel"], "begin_call.cuh": ["parallel"],
         "wait_for_rank.cuh": ["parallel", "one_shot"], "one_shot.cuh": ["one_shot"], "shard_arguments.cuh": ["parallel"]}

# ptx functions that order or hold back, by kind. A call becomes a statement that does nothing.
SYNCHRONISATION = {
    "barrier": ["bar_sync", "warp_sync", "cluster_arrive_relaxed", "cluster_wait"],
    "fence": ["fence_mbarrier_init", "fence_proxy_async", "fence_proxy_async_global",
              "wgmma_fence"],
    "wait": ["cp_async_wait_group", "mbarrier_wait_parity", "tma_store_wait_group_read", "tma_store_wait_group",
             "wgmma_wait_group", "griddepcontrol_wait"],
    "release": ["cp_async_commit_group", "mbarrier_init", "mbarrier_arrive", "mbarrier_arrive_expect_tx",
                "mbarrier_arrive_cluster", "mbarrier_arrive_expect_tx_cluster", "st_async_cluster", "tma_store_commit_group", "wgmma_commit_group",
                "griddepcontrol_launch_dependents", "st_release_sys"],
}
# Functions of the templates' own that do nothing else.
OWN_SYNCHRONISATION = {"await_barriers": "barrier", "release": "release", "wait_for_rank": "wait",
                       "wait_for_all_but": "wait", "await_words": "wait"}
# Those whose result is used: what is left of them without the synchronisation.
WITH_RESULT = {
    "bar_red_or": ("barrier", lambda arguments: f"bool({arguments[2]})"),
    "ld_acquire_sys": ("scope", lambda arguments: f"ptx::ld_global<u32>({arguments[0]})"),
}
for name, kind in (("atom_inc_acq_rel_gpu", "release"), ("atom_inc_relaxed_gpu", "scope")):
    WITH_RESULT[name] = (kind, lambda arguments:
                         "[](u32* p, u32 limit) { const u32 old = *p; *p = old >= limit ? 0 : old + 1; return old; }"
                         f"({', '.join(arguments)})")
for name, other in (("ld_relaxed_sys", "x[i] = ptx::ld_global<u64>(p + i)"), ("st_relaxed_sys", "ptx::st_global(p + i, x[i])")):
    WITH_RESULT[name] = ("scope", lambda arguments, other=other:
                         f"[](u64* p, auto& x) {{ for (int i = 0; i < WORDS; ++i) {other}; }}({', '.join(arguments)})")
# What is left of a release without its scope, besides what is left without all of it.
WITHOUT_SCOPE = {"st_release_sys": "st_global"}
# Orders, and numbers of flags and places, that follow from who a rank or a consumer is, or from the number of a call:
# what is left without that.
ROTATIONS = {"rank - index": "index", "rank + 1 + index": "rank + index", "sender * places + place": "place",
             "(m * across + n) * parts + part": "m * across + n", "epoch % 2": "0", "sender * items + item": "item",
             "epoch + 1 != 0 ? epoch + 1 : 2": "epoch + 1",
             "epoch_of(words[0]) != epoch || epoch_of(words[WORDS - 1]) != epoch": "epoch_of(words[0]) != epoch"}
# A comparison with one of these is a mask: whether something lies within the matrix or the work.
END = r"(?:tile\.)?(?:row_end|column_end)"  # where D ends
BOUNDS = rf"{END}|rows|columns|mn_left|k_left|valid|left|k_end|work\.k_begin|args\.ranks|" \
         r"chunk_count|packed_rows|packed_chunks|source_end|source_begin|half"
LOWER_BOUNDS = ("work.k_begin", "source_begin")
FLAGS = r"has_x|has_y|interior"
# Compared with one of these, what lets one thread of many, or a few, act: a mask too.
ELECTED = r"thread|lane|warp|ptx::thread_index\(\)"
ELECTING = r"0|1|2|CLUSTER|CLUSTER_K|u32\(place\.sharers\(\)\)"

# Removals that change no result by their nature: file, code (alone or -> what is left of it), what its line contains,
# reason.
ALLOWED = [
    ("pack.cuh", "aligned >= source_begin", "",
     "what it spares shares its aligned 16 bytes with the operand, which is no memory of somebody else's that could fault"),
    ("fixup.cuh", "ptx::warp_sync()", "", "only spares registers: it keeps the compiler from hoisting the loads that follow"),
    *(("mainloop_sm90.cuh", code, "", "only saves work: products of rows that are nobody's are not stored")
      for code in ("rows <= int(first_row)", "rows <= int(first_row) + 64")),
    *(("mainloop_sm90.cuh", code, "warp == 2", "only saves work: others would prefetch, too")
      for code in ("warp == 2", "ptx::elect_one()")),
    ("mainloop_sm90.cuh", "thread == 0", "tma_store_wait_group_read", "only saves work: the others have no stores to wait for"),
    ("store_sm90.cuh", "thread == 0", "tma_store_wait_group_read", "only saves work: the others have no stores to wait for"),
    ("store_sm90.cuh", "lane == 0", "columns >= 1", "only saves work: the others would store what the lane before them stores"),
    ("multiply_sm90.cuh", "columns <= WIDTH", "", "only saves work: wider products are those of rows that are loaded, too, and are not stored"),
    ("multiply_sm90.cuh", "ptx::mbarrier_wait_parity(smem.promotion_turn(consumer), turn)", "", "only saves time: who multiplies first changes no sum"),
    ("store_sm90.cuh", "j < columns / 8", "", "beyond it are no accumulators, so that the compiler leaves the rest of the loop out anyway"),
    ("groups.cuh", "ptx::atom_inc_acq_rel_gpu(&fault.count, 0xffffffffu)", "", "only launches and tiles that run at once would lose a count, and one is enough"),
    ("work_queue_sm90.cuh", "ptx::atom_inc_relaxed_gpu(args.counters, 0)", "", "nobody counts any more: an ordinary store would do"),
    ("work_queue_sm90.cuh", "ptx::atom_inc_relaxed_gpu(args.counters, 0xffffffffu)", "", "a GPU's tests miss it: emulated threads change at synchronisation alone, so that nothing comes between the load and the store"),
    ("staged_matrices.cuh", "left > 0", "", "only saves work: no element of the loop behind it is left"),
    *((file, "ptx::griddepcontrol_launch_dependents()", "", "only saves time: the next kernel starts early")
      for file in ("mainloop_sm80.cuh", "producer_sm90.cuh", "pack.cuh", "begin_call.cuh", "one_shot.cuh")),
    ("one_shot.cuh", "ptx::atom_inc_acq_rel_gpu(args.tickets, last)", "", "a GPU's tests miss it: emulated threads change at synchronisation alone, so that nothing comes between the load and the store"),
    ("one_shot.cuh", "rank < args.ranks", "ld_relaxed_sys", "only saves work: what is loaded of a rank that is none, nothing is made of"),
    ("shards_sm90.cuh", "lane == 0", "once is enough", "only saves work: the others would store the same"),
    *(("shards_sm90.cuh", code, line, "AddressSanitizer alone sees it: what is read beyond the matrix, and beyond the memory behind it, is not stored")
      for code, line in (("its_row >= tile.row_end", ""), ("column + at >= tile.column_end", ""), ("row + i < rows", "ld_global"))),
    ("wait_for_rank.cuh", "ptx::st_release_sys(&patience.report->state, u32(Patience::lost)) -> "
     "ptx::st_global(&patience.report->state, u32(Patience::lost))", "", "what it releases is read by the host, which has one memory with an emulated device"),
    ("shard_arguments.cuh", "rank - index", "", "only saves time: shards of A are waited for, in whichever order"),
    *(("epilogue.cuh", code, "", "bounds a prefetch, which does nothing where no memory is")
      for code in ("min_of(row + i / ACROSS * ROW_STEP, tile.row_end - 1)", "min_of(column + i % ACROSS * COLUMN_STEP, tile.column_end - 1)")),
]


# What a run says that is wrong with memory. A compiler says "error: ", too.
NOTICES = [r"Fatal glibc error: .*", r"ERROR: AddressSanitizer: .*", r"runtime error: .*"]


@dataclasses.dataclass(frozen=True)
class Removal:
    file: str
    line: int
    kind: str
    begin: int  # in the file's text
    end: int
    replacement: str
    code: str  # the line

    def name(self):
        return f"{self.file}:{self.line}"

    def what(self, text):
        removed = " ".join(re.sub(r"//[^\n]*", "", text[self.begin:self.end]).split())
        return f"{removed} -> {' '.join(self.replacement.split())}"


def matching(text, begin, pair="()"):
    """The end of what opens at `begin`."""
    depth = 0
    for i in range(begin, len(text)):
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if depth == 0:
            return i + 1
    raise ValueError("unbalanced " + pair)


def split_arguments(text):
    parts, depth, begin = [], 0, 0
    for i, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return parts + [text[begin:].strip()]


def without_comments(text):
    """Comments as spaces, so that positions stay."""
    return re.sub(r"//[^\n]*", lambda match: " " * len(match.group()), text)


def find_synchronisation(text):
    kinds = {name: kind for kind, names in SYNCHRONISATION.items() for name in names}
    for match in re.finditer(r"ptx::(\w+)(<[^;()]*>)?\(", text):
        name, end = match.group(1), matching(text, match.end() - 1)
        if name in kinds:
            yield kinds[name], match.start(), end, "void(0)"
        elif name in WITH_RESULT:
            kind, rest = WITH_RESULT[name]
            yield kind, match.start(), end, rest(split_arguments(text[match.end():end - 1]))
        if name in WITHOUT_SCOPE:
            yield "scope", match.start(), end, f"ptx::{WITHOUT_SCOPE[name]}({text[match.end():end]}"
    for match in re.finditer(r"ptx::cluster_arrive_relaxed\(\);\s*ptx::cluster_wait\(\)", text):  # both, and above each alone
        yield "barrier", match.start(), match.end(), "void(0)"
    for match in re.finditer(rf"\b(?:sum\.)?({'|'.join(OWN_SYNCHRONISATION)})\(", text):
        end = matching(text, match.end() - 1)
        if text[end] == ";":  # else it is the definition
            yield OWN_SYNCHRONISATION[match.group(1)], match.start(), end, "void(0)"


def comparison_around(text, operator):
    """The comparison whose operator is at this span: on each side up to a bracket or an operator that binds less."""
    def ends(i):
        return (text[i] in ";{}?," or text[i - 1:i + 1] in ("&&", "||") or text[i:i + 2] in ("&&", "||") or
                text[i - 1:i + 2] == " = " or text[i] == ":" and ":" not in (text[i - 1], text[i + 1]) or
                text[i - 5:i + 1] == "return")

    begin, depth = operator[0] - 1, 0
    while depth > 0 or not (text[begin] == "(" or ends(begin)):
        depth += (text[begin] in ")]") - (text[begin] in "([")
        begin -= 1
    end, depth = operator[1], 0
    while depth > 0 or not (text[end] == ")" or ends(end)):
        depth += (text[end] in "([") - (text[end] in ")]")
        end += 1
    begin += 1
    return begin + len(text[begin:]) - len(text[begin:].lstrip()), end - len(text[:end]) + len(text[:end].rstrip())


def find_masks(text):
    headers = [(match.start(), matching(text, match.end() - 1)) for match in re.finditer(r"\b(for|while|static_assert) ?\(", text)]
    for match in re.finditer(r" (<|<=|>|>=|==|!=) ", text):
        if any(begin < match.start() < end for begin, end in headers):
            continue
        begin, end = comparison_around(text, match.span())
        left, right = text[begin:match.start()], text[match.end():end]
        if re.fullmatch(ELECTED, left) and re.fullmatch(ELECTING, right):
            yield "election", begin, end, "true" if match.group(1) in ("==", "<") else "false"
            continue
        bound = [re.search(rf"(?<![\w.])({BOUNDS})\b", side) is not None for side in (left, right)]
        if not any(bound) or left.startswith("++"):
            continue
        # x < bound is true inside; bound < x, and bound == x, are true outside; x % bound == 0 of what is whole inside.
        below = match.group(1) in ("<", "<=")
        if match.group(1) == "==":
            inside = "%" in left
        elif re.match(END + r"\b", left):  # what is left of D is compared with what is wanted of it
            inside = not below
        else:
            inside = below == bound[1] if right not in LOWER_BOUNDS else not below
        yield "mask", begin, end, "true" if inside else "false"
    for match in re.finditer(r"ptx::elect_one\(\)", text):
        yield "election", match.start(), match.end(), "true"
    for match in re.finditer(r"\bmin_of\(", text):
        end = matching(text, match.end() - 1)
        given, limit = split_arguments(text[match.end():end - 1])
        if re.search(END + r"\b", limit):
            yield "mask", match.start(), end, given
    for match in re.finditer(rf"\b({FLAGS})\b", text):
        line_begin = text.rfind("\n", 0, match.start()) + 1
        if re.search(r"\bif \(|\breturn\b", text[line_begin:match.start()]):
            yield "mask", match.start(), match.end(), "true"


def find_rotations(text):
    for order, rest in ROTATIONS.items():
        for match in re.finditer(re.escape(order), text):
            yield "rotation", match.start(), match.end(), rest


def find_removals(texts):
    removals = []
    for file in FILES:
        original = texts[file]
        text = without_comments(original)
        found = sorted({*find_synchronisation(text), *find_masks(text), *find_rotations(text)}, key=lambda item: item[1])
        for kind, begin, end, replacement in found:
            line_begin = original.rfind("\n", 0, begin) + 1
            code = original[line_begin:original.find("\n", begin)].strip()
            removals.append(Removal(file, original.count("\n", 0, begin) + 1, kind, begin, end, replacement, code))
    return removals


def matches(entry, removal, text):
    file, code, line, _ = entry
    return removal.file == file and code in (text[removal.begin:removal.end], removal.what(text)) and line in removal.code


def allowed(removal, text):
    return next((entry[-1] for entry in ALLOWED if matches(entry, removal, text)), None)


def run_tests(tests, templates, tag, timeout):
    """What noticed, or None; compile failures are no notice."""
    with tempfile.TemporaryDirectory(prefix="removal-") as work:
        environment = dict(os.environ, JITGEMM_TEMPLATES_DIR=str(templates), JITGEMM_TEST_CACHE_DIR=work + "/cache",
                           TMPDIR=work)
        try:
            done = subprocess.run([str(tests), f"[removal][{tag}]", "--abort"], cwd=work, env=environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", timeout=timeout)
        except subprocess.TimeoutExpired:
            return f"no end within {timeout} s"
    if done.returncode == 0:
        return None
    if "No test cases matched" in done.stdout or "No tests ran" in done.stdout:
        raise SystemExit(f"{tests} has no tests tagged [removal]: give the test binary")
    for pattern in NOTICES:
        if found := re.search(pattern, done.stdout):
            return found.group()
    if found := re.search(r"error: .*", done.stdout):
        raise RuntimeError("it does not compile: " + found.group())
    caught = re.search(r"caught with seed (\d+): (.*)", done.stdout)
    if caught:
        return f"seed {caught.group(1)}: " + caught.group(2).split(": ", 1)[-1]
    signal = re.search(r"SIG[A-Z]+[^\n]*", done.stdout)
    return signal.group() if signal else f"exit code {done.returncode}"


def try_removal(removal, snapshot, all_tests, timeout):
    with tempfile.TemporaryDirectory(prefix="removal-") as work:
        templates = pathlib.Path(work) / "templates"
        shutil.copytree(snapshot, templates)
        text = (snapshot / removal.file).read_text()
        (templates / removal.file).write_text(text[:removal.begin] + removal.replacement + text[removal.end:])
        for tests in all_tests:
            for tag in FILES[removal.file]:
                notice = run_tests(tests, templates, tag, timeout)
                if notice:
                    return f"{tag}, {notice}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=pathlib.Path, action="append", default=[], help="test binary; may be repeated")
    parser.add_argument("--all", action="store_true", help="try every removal")
    parser.add_argument("--sample", type=int, metavar="N", help="try N of them")
    parser.add_argument("--seed", default="0", help="what chooses the sample, any text: the tree")
    parser.add_argument("--only", metavar="TEXT", help="try those whose FILE:LINE or code contains this")
    parser.add_argument("--list", action="store_true", help="print the removals and end")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one test run")
    parser.add_argument("--log", type=pathlib.Path, help="write the table here too")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="removal-") as work:  # edits to the tree do not disturb a long run
        snapshot = pathlib.Path(work) / "templates"
        shutil.copytree(TEMPLATES, snapshot)
        return run(parser, arguments, snapshot)


def run(parser, arguments, snapshot):
    texts = {file: (snapshot / file).read_text() for file in FILES}
    removals = find_removals(texts)
    for entry in ALLOWED:
        if not any(matches(entry, removal, texts[removal.file]) for removal in removals):
            parser.error(f"what ALLOWED says of {entry[0]} is of no removal any more: {entry[1]}")
    if arguments.list:
        for removal in removals:
            note = f"  (allowed: {reason})" if (reason := allowed(removal, texts[removal.file])) else ""
            print(f"{removal.name():24} {removal.kind:8} {removal.what(texts[removal.file])}{note}")
        return 0
    if not arguments.tests:
        parser.error("name the test binary with --tests")
    tests = [path.resolve() for path in arguments.tests]

    chosen = [removal for removal in removals if not allowed(removal, texts[removal.file])]
    if arguments.only:
        chosen = [removal for removal in chosen if arguments.only in removal.name() + " " + removal.code]
    if arguments.sample:
        chosen = random.Random(arguments.seed).sample(chosen, min(arguments.sample, len(chosen)))
    elif not arguments.all and not arguments.only:
        parser.error("choose --all, --sample N, --only TEXT or --list")

    for tag in dict.fromkeys(tag for removal in chosen for tag in FILES[removal.file]):
        for binary in tests:
            if notice := run_tests(binary, snapshot, tag, arguments.timeout):
                print(f"{binary} fails without any removal: {notice}", file=sys.stderr)
                return 1

    lines, missed = [], 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        futures = {pool.submit(try_removal, removal, snapshot, tests, arguments.timeout): removal for removal in chosen}
        results = {}
        for future in concurrent.futures.as_completed(futures):
            removal = futures[future]
            try:
                notice = future.result()
                verdict = ("caught", notice) if notice else ("MISSED", "nothing failed")
            except RuntimeError as error:
                verdict = ("BROKEN", str(error))
            missed += verdict[0] != "caught"
            results[removal] = verdict
            if sys.stderr.isatty() or verdict[0] != "caught":
                print(f"[{len(results)}/{len(chosen)}] {verdict[0]} {removal.name()}", file=sys.stderr)
    for removal in sorted(results, key=lambda each: (list(FILES).index(each.file), each.begin)):
        verdict, notice = results[removal]
        lines.append(f"{verdict} {removal.name():22} {removal.kind:8} {removal.what(texts[removal.file])}\n"
                     f"         by {notice}" if verdict == "caught" else
                     f"{verdict} {removal.name():22} {removal.kind:8} {removal.what(texts[removal.file])}: {notice}")
    for removal in removals:
        if reason := allowed(removal, texts[removal.file]):
            lines.append(f"allowed {removal.name():21} {removal.kind:8} {removal.what(texts[removal.file])}: {reason}")
    lines.append(f"{len(chosen)} removals of {len(removals)}, {len(chosen) - missed} caught, {missed} not")
    report = "\n".join(lines)
    print(report)
    if arguments.log:
        arguments.log.write_text(report + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
