#!/usr/bin/env python3
"""Tests of tools/report.py epilogues: check_epilogues_report.py"""

import csv
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Epilogues(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)

    def write(self, name, *rows):
        columns = ["protocol", "m", "n", "k", "model_us", "model_config", "tuned_us", "tuned_config", "cublaslt_us", "others", "check"]
        with (self.out / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(rows)
        return self.out / name

    def epilogues(self, *arguments):
        command = [sys.executable, "-B", ROOT / "tools/report.py", "epilogues", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def test_ratios_of_each(self):
        first = {"protocol": "rep", "m": 1000, "n": 2100, "k": 64, "model_us": 12, "model_config": "sm90 64x64x64", "cublaslt_us": 18,
                 "others": "plain 10 0.01 sm90 64x64x64; built_in 8 0.01 sm90 64x64x64", "check": "ok"}
        second = {**first, "m": 2000, "model_us": 18, "others": "plain 10 0.01 sm90", "cublaslt_us": ""}
        wrong = {**first, "m": 3000, "model_us": "", "check": "D(0, 0) is nan"}
        files = [self.write("residual.csv", first, second, wrong, {**first, "protocol": "mix", "model_us": 99}),
                 self.write("clamp.csv", {**first, "others": "plain 6 0.01 sm90"})]
        done = self.epilogues(*files, "--short", self.out / "short.csv")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines() if "|" in line][2:]
        # 2 bytes for each of 1000 x 2100 take a microsecond at 4.2 TB/s.
        self.assertEqual(rows[0], ["residual", "2 of 3", "**1.470** (1.800: 2000x2100x64)", "**1.279** (1.500: 2000x2100x64)",
                                   "**1.500** (1.500: 1000x2100x64)", "**1.500** (1.500: 1000x2100x64)"])
        self.assertEqual(rows[1], ["clamp", "1 of 1", "**2.000** (2.000: 1000x2100x64)", "-", "-", "**1.500** (1.500: 1000x2100x64)"])
        short = (self.out / "short.csv").read_text().splitlines()
        self.assertEqual(short[1], "residual,1000,2100,64,sm90 64x64x64,12.00,10.00,8.00,18.00,ok")
        self.assertEqual((len(short), short[3][-5:]), (5, "wrong"))

    def test_a_name_that_is_no_epilogue_is_one_line(self):
        done = self.epilogues(self.write("nothing.csv"))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"\Areport\.py: error: nothing\.csv is named as no epilogue of epilogues/: [^\n]*\n\Z")


if __name__ == "__main__":
    unittest.main()
