#!/usr/bin/env python3
"""Tests of all scripts under tools/ at once: check_scripts.py"""

import ast
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"


def scripts():
    """What can be run, which its first line says; the other Python files are modules of these."""
    files = sorted([*TOOLS.rglob("*.sh"), *TOOLS.rglob("*.py"), ROOT / "tests/fuzz/run.sh"])
    return [path for path in files if path.read_text().startswith("#!")]


class Help(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home, modules = Path(folder.name, "home"), Path(folder.name, "modules")
        self.home.mkdir()
        modules.mkdir()
        for name in ("matplotlib", "PIL", "triton"):
            (modules / f"{name}.py").write_text("raise ImportError('hidden by a test')\n")
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": str(modules)}

    def run_script(self, path, *arguments):
        interpreter = ["bash"] if path.suffix == ".sh" else [sys.executable, "-B"]
        return subprocess.run([*interpreter, path, *arguments], capture_output=True, text=True, cwd=self.home, timeout=60,
                              stdin=subprocess.DEVNULL, env=self.environment)

    def test_every_script_has_help(self):
        self.assertGreater(len(scripts()), 15)
        for path in scripts():
            for option in ("--help", "-h"):
                with self.subTest(path=str(path.relative_to(ROOT)), option=option):
                    done = self.run_script(path, option)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertIn(str(path.relative_to(ROOT)), done.stdout)  # a line that can be copied
                    self.assertGreater(len(done.stdout.splitlines()), 2)
                    self.assertEqual(os.listdir(self.home), [])

    def test_so_have_the_commands_of_report(self):
        for command in ("record", "corpora", "published", "types", "epilogues", "seeds"):
            done = self.run_script(TOOLS / "report.py", command, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(f"tools/report.py {command} ", done.stdout)
        done = self.run_script(TOOLS / "report.py", "nothing")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"\Areport\.py: error: no command nothing: name one of record, [^\n]*\n\Z")


class Imports(unittest.TestCase):
    def test_python_files_import_each_other_in_no_circle(self):
        files = {".".join(path.relative_to(TOOLS).with_suffix("").parts): path for path in TOOLS.rglob("*.py")}
        imports = {}
        for name, path in files.items():
            found = set()
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
            imports[name] = found & set(files)
        self.assertIn("reports.record", imports["report"])
        done = set()
        while len(done) < len(files):
            ready = {name for name in files if name not in done and imports[name] <= done}
            self.assertTrue(ready, f"a circle among {sorted(set(files) - done)}")
            done |= ready


if __name__ == "__main__":
    unittest.main()
