#!/usr/bin/env python3
"""What makes a template a text for editors: check_templates.py Constants | Editors"""

import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
GENERATED = ("gemm.cu.in", "pack.cu.in", "check.cu.in", "sum_epilogue.cu.in", "one_shot.cu.in")
FILES = sorted(TEMPLATES.rglob("*.cuh"))
CLANG, CLANGD = shutil.which("clang++"), shutil.which("clangd")


def declarations(*names):
    """Of constants, types and assertions in namespace jitgemm::device, each as one line without comments."""
    found = []
    for name in names:
        text = re.sub(r"//.*", lambda comment: comment[0] if "namespace" in comment[0] else "", (TEMPLATES / name).read_text())
        for block in re.findall(r"(?s)\nnamespace jitgemm::device \{\n(.*?)\n\}  // namespace jitgemm::device", text):
            block = re.sub(r"\[\[maybe_unused\]\] |(?<=\{) ", "", " ".join(block.split()))
            found += [line.strip() for line in re.split(r";(?= |$)", block)]
    return [line for line in found if re.match(r"constexpr |using |static_assert\(", line)]


def matches(declaration, line):
    """Whether `line` is the generator's `declaration` with something for each of its placeholders."""
    return re.fullmatch(re.sub(r"\\\$\\\{\w+\\\}", r"\\w+(?:, \\w+)*", re.escape(declaration)), line)


class Constants(unittest.TestCase):
    def check(self, generator, editor):
        self.assertGreater(len(generator), 25)
        for declaration in generator:
            self.assertTrue(any(matches(declaration, line) for line in editor), f"templates/ide*.cuh lacks: {declaration};")
        for line in editor:
            self.assertTrue(any(matches(declaration, line) for declaration in generator),
                            f"no templates/*.cu.in has what an ide*.cuh declares: {line};")

    def test_all_main_loops_have_the_generator_s(self):
        families = sorted(file.name for file in TEMPLATES.glob("ide_*.cuh"))
        self.assertEqual(families, sorted(file.name.replace("mainloop", "ide") for file in TEMPLATES.glob("mainloop_*.cuh")))
        for family in families:
            self.check(declarations(*GENERATED), declarations("ide.cuh", family))

    def test_what_differs_is_noticed(self):
        self.assertTrue(matches("constexpr int A = ${a}, B = ${b}", "constexpr int A = 1, B = 2"))
        for other in ("constexpr int A = 1", "constexpr int A = 1, C = 2", "constexpr bool A = 1, B = 2"):
            self.assertFalse(matches("constexpr int A = ${a}, B = ${b}", other))
        for lost in range(3):
            generator, editor = declarations(*GENERATED), declarations("ide.cuh", "ide_sm80.cuh")
            del (editor if lost == 0 else generator)[lost]
            with self.assertRaises(AssertionError):
                self.check(generator, editor)


class Editors(unittest.TestCase):
    def setUp(self):
        self.assertGreater(len(FILES), 35)

    def run_on(self, *command):
        done = subprocess.run(command, cwd=TEMPLATES, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    @unittest.skipUnless(CLANG, "no clang++")
    def test_clang_reads_each_file_alone(self):
        flags = re.search(r"(?s)Add: \[(.*?)\]", (TEMPLATES / ".clangd").read_text())[1].replace(",", " ").split()
        for file in FILES:
            with self.subTest(file=str(file)):
                code, said = self.run_on(CLANG, *flags, "-fsyntax-only", file)
                self.assertEqual(code, 0, said)

    @unittest.skipUnless(CLANGD, "no clangd")
    def test_clangd_reads_each_file_alone(self):
        for file in FILES:
            with self.subTest(file=str(file)):
                _, said = self.run_on(CLANGD, "--check=" + str(file), "--check-lines=1-1")
                self.assertIn("Building AST", said)
                # A diagnostic names its line; that a refactoring does not apply does not count.
                self.assertEqual(re.findall(r"(?m)^E\[.*\] Line \d+: .*$", said), [])


if __name__ == "__main__":
    if sys.argv[1:] == ["Editors"] and not (CLANG or CLANGD):
        sys.exit("SKIPPED: neither clang++ nor clangd is on PATH: install clang or clangd")
    unittest.main()
