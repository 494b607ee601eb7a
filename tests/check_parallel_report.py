#!/usr/bin/env python3
"""Tests of tools/report.py parallel."""

import csv
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Parallel(unittest.TestCase):
    folder = ROOT / "tools/results/h200/parallel"

    def page_of(self, path):
        command = [sys.executable, "-B", ROOT / "tools/report.py", "parallel", path]
        return subprocess.run(command, capture_output=True, text=True)

    def test_the_page_says_what_the_file_says(self):
        done = self.page_of(self.folder / "two_gpus_bf16.csv")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, (self.folder / "two_gpus_bf16.md").read_text())

    def test_means_and_shares(self):
        names = ["exchange", "m", "n", "k", "ranks", "device", "nccl", "cublas_nccl_us", "ours_nccl_us", "ours_us",
                 "ours_alone_us", "over_cublas_nccl", "over_best_in_turn", "hidden", "overlapped", "one_shot", "check"]
        rows = [["all_gather_a", "2048", "8", "8", "2", "X", "2.28", "40", "30", "20", "10", "2", "1.5", "", "yes", "no", "ok"],
                ["all_gather_a", "4096", "8", "8", "2", "X", "2.28", "80", "90", "80", "70", "1", "1", "", "no", "no", "ok"],
                ["all_reduce_d", "1", "8", "8", "2", "X", "2.28", "8", "8", "4", "3", "2", "2", "", "no", "yes", "ok"]]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "few.csv"

            def write():
                with path.open("w", newline="") as file:
                    csv.writer(file).writerows([names, *rows])

            write()
            lines = self.page_of(path).stdout.splitlines()
            self.assertIn("| all_gather_a | 2048 and more | 2 | **1.414** | 1.000 | 1.225 | 1.000 | 0.50 |", lines)
            self.assertIn("| all_reduce_d | up to 128 tokens | 1 | **2.000** | 2.000 | 2.000 | 2.000 | 0.80 |", lines)
            self.assertTrue(lines[-1].endswith("| 2.000 | one shot |") and lines[-2].endswith("| 1.000 | NCCL in turn |"))
            rows[1][-1] = "3 rows differ"
            write()
            done = self.page_of(path)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("1 shapes of 3 have no right results of all arms; measure them again", done.stderr)


if __name__ == "__main__":
    unittest.main()
