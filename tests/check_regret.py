#!/usr/bin/env python3
"""Tests of tools/regret.py and tools/draw_shapes.py."""

import csv
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ["m", "n", "k", "model_us", "model_config", "tuned_us", "tuned_config", "others", "check"]


def run(tool, *arguments):
    return subprocess.run([sys.executable, "-B", ROOT / "tools" / tool, *arguments], capture_output=True, text=True)


def row(m, model="", tuned="", others="", check="ok"):
    return dict(m=m, n=8, k=16, model_us=model, model_config="sm90 a" if model else "", tuned_us=tuned,
                tuned_config="sm90 b" if tuned else "", others=others, check=check)


class Regret(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def file(self, name, rows):
        with (self.folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        return self.folder / name

    def lines(self, *files):
        done = run("regret.py", *files)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual(lines[0], ["choice", "protocol", "shapes", "geomean", "p95", "worst"])
        return lines[1:]

    def table(self, *files):
        """Of files that have rep alone."""
        lines = self.lines(*files)
        self.assertEqual({line[1] for line in lines}, {"rep"})
        return {line[0]: line[2:] for line in lines}

    def test_a_regret_is_over_the_least_of_all_arms(self):
        table = self.table(self.file("one.csv", [
            row(100, model="12", tuned="11", others="near 20 0.01 sm90 c; finalist1 10 0.02 sm90 d, e"),  # a finalist's
            row(200, model="10", tuned="20", others="near 40 0.01 sm90 c; finalist1 16 0.02 sm90 d"),  # the model's
            row(300, model="1", others="near 0 0 sm90 c", check="row 1 is wrong")]))
        self.assertEqual(table, {"model": ["2", "1.0954", "1.200", "1.200", "100x8x16"],
                                 "tuned": ["2", "1.4832", "2.000", "2.000", "200x8x16"],
                                 "near": ["2", "2.8284", "4.000", "4.000", "200x8x16"]})

    def test_repeats_are_the_noise_floor(self):
        table = self.table(self.file("one.csv", [
            row(100, model="8", tuned="10", others="repeat1 11 0 sm90 b; repeat2 9 0 sm90 b"),
            row(200, model="10", others="repeat1 12.5 0 sm90 a"),  # of the model's choice where there is no tuned one
            row(300, tuned="10")]))
        self.assertEqual(table["repeats"], ["2", "1.2360", "1.250", "1.250", "200x8x16"])
        self.assertEqual(table["tuned"], ["2", "1.1180", "1.250", "1.250", "100x8x16"])
        self.assertEqual(set(table), {"model", "tuned", "repeats"})
        # They count as arms: the least may be one of them.
        table = self.table(self.file("two.csv", [row(100, tuned="10", others="repeat1 8 0 sm90 b")]))
        self.assertEqual(table["tuned"], ["1", "1.2500", "1.250", "1.250", "100x8x16"])

    def test_what_was_not_timed_is_no_arm(self):
        table = self.table(self.file("one.csv", [row(100, tuned="10", others="near 0 0.0000 sm90 c"), row(200)]))
        self.assertEqual(table, {"tuned": ["1", "1.0000", "1.000", "1.000", "100x8x16"]})

    def test_the_95th_percentile_and_the_worst_of_several_files(self):
        # 1.01 ... 1.40, in no order: 38 of 40 are not above the 38th.
        rows = [row(1000 + i, model="100", tuned=str(101 + i * 7 % 40)) for i in range(40)]
        table = self.table(self.file("one.csv", rows[:25]), self.file("two.csv", rows[25:]))
        self.assertEqual(table["tuned"][0], "40")
        self.assertEqual(table["tuned"][2:4], ["1.380", "1.400"])
        self.assertEqual(table["tuned"][4], next(f"{r['m']}x8x16" for r in rows if r["tuned_us"] == "140"))

    def test_each_protocol_is_by_itself(self):
        path = self.folder / "both.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["protocol", *COLUMNS])
            writer.writeheader()
            for m in (100, 200):  # in mix the finalist is not the same, and all takes longer
                writer.writerow({"protocol": "mix", **row(m, model="33", tuned="30", others="finalist1 24 0 sm90 e")})
                writer.writerow({"protocol": "rep", **row(m, model="10", tuned="12", others="finalist1 8 0 sm90 d")})
        old = self.file("old.csv", [row(300, model="16", tuned="10")])
        self.assertEqual(self.lines(path, old), [
            ["model", "rep", "3", "1.3572", "1.600", "1.600", "300x8x16"],
            ["tuned", "rep", "3", "1.3104", "1.500", "1.500", "200x8x16"],
            ["model", "mix", "2", "1.3750", "1.375", "1.375", "200x8x16"],
            ["tuned", "mix", "2", "1.2500", "1.250", "1.250", "200x8x16"]])

    def test_what_it_cannot_read_is_one_line(self):
        done = run("regret.py")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("usage: regret.py", done.stderr)
        unlike = self.file("one.csv", [row(100, model="12", others="near 20")])
        for path, what in ((self.folder / "none.csv", "cannot be read"), (unlike, "is not what `jitgemm bench --finalists")):
            done = run("regret.py", path)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, f"\\Aregret\\.py: error: [^\\n]*{path.name} {what}[^\\n]*\\n\\Z")


class DrawShapes(unittest.TestCase):
    def shapes(self, seed, count, *options):
        done = run("draw_shapes.py", seed, str(count), *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        first, *lines = done.stdout.splitlines()
        self.assertEqual(first, " ".join(["# draw_shapes.py", seed, str(count), *options]))
        return [tuple(map(int, line.split())) for line in lines]

    def test_a_seed_is_its_shapes(self):
        shapes = self.shapes("1f2e3d4c", 50)
        self.assertEqual(len(shapes), 50)
        self.assertEqual(shapes, self.shapes("1f2e3d4c", 50))
        self.assertEqual(shapes[:20], self.shapes("1f2e3d4c", 20))
        self.assertEqual(shapes, self.shapes("1F2E3D4C", 50))
        self.assertNotEqual(shapes, self.shapes("1f2e3d4d", 50))

    def test_sizes_are_log_uniform_and_half_of_them_multiples_of_8(self):
        shapes = self.shapes("a5", 400)
        self.assertTrue(all(len(shape) == 3 for shape in shapes))
        sizes = [size for shape in shapes for size in shape]
        self.assertTrue(all(128 <= size <= 8192 for size in sizes))
        self.assertTrue(all(size % 8 == 0 for shape in shapes[::2] for size in shape))
        odd = [size % 8 == 0 for shape in shapes[1::2] for size in shape]
        self.assertLess(sum(odd), 0.25 * len(odd))
        for octave in range(6):  # a sixth of them each
            part = sum(128 << octave <= size < 256 << octave for size in sizes) / len(sizes)
            self.assertAlmostEqual(part, 1 / 6, delta=0.05)

    def test_other_kinds(self):
        aligned = self.shapes("a5", 100, "--kind", "aligned")
        self.assertTrue(all(128 <= size <= 8192 and size % 8 == 0 for shape in aligned for size in shape))
        decode = self.shapes("a5", 400, "--kind", "decode")
        self.assertTrue(all(1 <= m <= 256 for m, _, _ in decode))
        self.assertTrue(all(1024 <= size <= 16384 and size % 64 == 0 for _, n, k in decode for size in (n, k)))
        for octave in range(8):
            part = sum(1 << octave <= m < 2 << octave for m, _, _ in decode) / len(decode)
            self.assertAlmostEqual(part, 1 / 8, delta=0.07)

    def test_a_grid_is_sampled_evenly_by_work(self):
        sizes = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384]
        grid = sorted(m * n * k for m in sizes for n in sizes for k in sizes)
        sample = self.shapes("a5", 120, "--grid", ",".join(map(str, sizes)))
        self.assertEqual(len(set(sample)), 120)
        self.assertTrue(all(size in sizes for shape in sample for size in shape))
        # The i-th is of the i-th of 120 parts, one of which has eight or nine shapes.
        works = [m * n * k for m, n, k in sample]
        self.assertNotEqual(works, sorted(works))
        for i, work in enumerate(sorted(works)):
            self.assertTrue(grid[i * 1000 // 120] <= work <= grid[(i + 1) * 1000 // 120 - 1], (i, work))
        self.assertEqual(sorted(self.shapes("a5", 8, "--grid", "2,3")),
                         [(m, n, k) for m in (2, 3) for n in (2, 3) for k in (2, 3)])

    def test_the_corpora_are_what_their_first_line_draws(self):
        corpora = {path.stem: path.read_text() for path in (ROOT / "tests/corpora").glob("*.txt")}
        drawn = {name: text for name, text in corpora.items() if text.startswith("# draw_shapes.py ")}
        self.assertEqual(sorted(drawn), ["cuda_l2_120", "regret_bf16_16", "regret_decode_14", "regret_f16_30"])
        for name, text in drawn.items():
            self.assertEqual(run("draw_shapes.py", *text.splitlines()[0].split()[2:]).stdout, text, name)

        def shapes(names):
            return [line for name in names for line in corpora[name].splitlines() if not line.startswith("#")]

        fresh = [name for name in corpora if name.startswith("regret_")]
        self.assertEqual(len(set(shapes(fresh))), 60)
        self.assertEqual(set(shapes(fresh)) & set(shapes(set(corpora) - set(fresh))), set())

    def test_it_says_what_it_takes(self):
        done = run("draw_shapes.py", "a5")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("usage: draw_shapes.py", done.stderr)
        self.assertIn('the seed is "seed": write hexadecimal digits', run("draw_shapes.py", "seed", "5").stderr)
        for count, sizes, what in (("5", "64,x", "the sizes are"), ("5", "64,64", "the sizes are"), ("5", "0,64", "the sizes are"),
                                   ("9", "64,128", "write 1 to 8"), ("0", "64,128", "write 1 to 8")):
            done = run("draw_shapes.py", "a5", count, "--grid", sizes)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(what, done.stderr)


if __name__ == "__main__":
    unittest.main()
