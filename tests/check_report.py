#!/usr/bin/env python3
"""Tests of tools/report.py, on tests/report/: check_report.py Numbers Record Published | Figures"""

import csv
import io
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "tests/report/sample.csv"
ABLATION = ROOT / "tests/report/ablation.csv"
SUMMARY = """date      2026-01-02T03:04Z
commit    abcdef0
device    NVIDIA H200, 1.2, 1980 MHz, 700.00 W
toolkit   13.0, V13.0.88
first call, cold kernel cache: 300.4 ms (sm90 128x256x64 group_m=8 stages=4 warps=8 schedule=data_parallel)
first call, warm kernel cache: 2.516 ms (sm90 128x256x64 group_m=8 stages=4 warps=8 schedule=data_parallel)
first call, warm kernel cache: 2.304 ms (sm90 128x256x64 group_m=8 stages=4 warps=8 schedule=data_parallel)
host time of a call: bare launch 2.5 us, gemm() 2.75 us (sm80 64x64x32 group_m=8 schedule=split_k splits=2)

== bench sample --frozen, tuned in 3 s
peer: cuBLAS 130100, cuBLASLt 130100

== table
bench sample                          12 s  ok, 12 of 12 shapes, tuned in 3 s; cublas / tuned 1.000
all                                   12 s  ok

== the same choices with the kernels of 0fedcba
date      2026-01-03T03:04Z
commit    0fedcba

== table
bench sample                          12 s  ok, 12 of 12 shapes, tuned in 3 s; cublas / tuned 0.987; cublaslt best / tuned 0.789
"""
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

from reports.records import parse_config, read_corpora_of  # noqa: E402


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def report(self, *arguments):
        command = [sys.executable, "-B", ROOT / "tools/report.py", "corpora", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def page(self, *arguments):
        done = self.report(SAMPLE, "--html", self.out / "page.html", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return (self.out / "page.html").read_text(encoding="utf-8")

    def check_self_contained(self, page):
        self.assertNotRegex(page, r"(?i)https?:|<link|<iframe|@import|url\(|\bimport\b|fetch\(|XMLHttpRequest")
        for source in re.findall(r'\bsrc\s*=\s*"([^"]{0,40})', page):
            self.assertTrue(source.startswith("data:image/png;base64,"), source)
        for target in re.findall(r'\bhref\s*=\s*"([^"]*)', page):
            self.assertRegex(target, "^#")
            self.assertIn(f'id="{target[1:]}"', page)


class Numbers(Case):
    """What needs no matplotlib."""

    def test_the_summary_line(self):
        done = self.report(SAMPLE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # Twelve speed-ups, powers of two from 1/4 to 4 whose product is 1; cuBLASLt's are 0.8 of them.
        found = re.fullmatch(
            r"sample 12 cublas 1\.000 \[([\d.]+), ([\d.]+)\] p5 0\.500 \(\d+x\d+x512\) worst 0\.250 \(512x1024x512\) "
            r"cublaslt 0\.800 \[([\d.]+), ([\d.]+)\] p5 0\.400 \(\d+x\d+x512\) worst 0\.200 \(512x1024x512\)\n", done.stdout)
        self.assertTrue(found, done.stdout)
        # 2^(+-1.96 sqrt(16 / 12 / 12)), which the bootstrap of a dozen values is near to.
        low, high, lt_low, lt_high = map(float, found.groups())
        self.assertAlmostEqual(low, 0.636, delta=0.03)
        self.assertAlmostEqual(high, 1.573, delta=0.07)
        self.assertAlmostEqual(lt_low, 0.8 * low, delta=0.002)
        self.assertAlmostEqual(lt_high, 0.8 * high, delta=0.002)

    def test_the_page_refers_to_nothing_else_and_says_it_all(self):
        page = self.page("--ablation", ABLATION, "--no-plots")
        self.check_self_contained(page)
        for text in ("level with cuBLAS default", "7 of 12 shapes", "512 × 1024 × 512", "sm90 128x256x64", "2x1x1", "ping_pong",
                     "Not counted: 1", "differs &lt;at&gt; (3, 4)", "multicast of A &amp; B", "+5.0 %", "+0.1 %"):
            self.assertIn(text, page)
        self.assertNotIn("<at>", page)
        cell = r'<td class="n"><span class="\w+ ">([\d.]+)</span></td>'
        speedups = [cublas for cublas, _ in re.findall(f"{cell}{cell}<td><code>", page)]
        self.assertEqual(speedups, [f"{x:.3f}" for x in sorted([2, .5, 1, .25, .5, 4, .5, 2, 1, 2, .5, 2])])

    def test_intensity_and_waves(self):
        first = read_corpora_of(SAMPLE)[0].shapes[0]
        self.assertEqual(first.bytes, 2 * (128 * 512 + 512 * 256 + 128 * 256))
        self.assertEqual(first.flop, 2 * 128 * 256 * 512)
        self.assertEqual(first.wave_class, 0)

    def test_configurations_with_words_missing(self):
        self.assertEqual(
            parse_config("sm90 128x256x64 group_m=8 stages=4 warps=8 cluster=2x1x1 consumers=ping_pong pack=ab "
                         "schedule=persistent grid=132"),
            {"tile": "sm90 128x256x64", "cluster": "2x1x1", "consumers": "ping_pong", "schedule": "persistent", "stages": "4",
             "pack": "ab"})
        self.assertEqual(
            parse_config("sm80 32x64x64 schedule=split_k splits=6"),
            {"tile": "sm80 32x64x64", "cluster": "1x1x1", "consumers": "cooperative", "schedule": "split_k",
             "stages": "not named", "pack": "none"})

    def test_a_folder_stands_for_its_files(self):
        (self.out / "sample.csv").write_bytes(SAMPLE.read_bytes())
        (self.out / "ablation.csv").write_bytes(ABLATION.read_bytes())
        done = self.report(self.out, "--html", self.out / "page.html", "--no-plots")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()], ["sample"])
        self.assertIn("multicast of A &amp; B", (self.out / "page.html").read_text(encoding="utf-8"))

    def test_two_files_of_one_name(self):
        copies = [self.out / folder / "same.csv" for folder in ("fast", "promoted")]
        for copy in copies:
            copy.parent.mkdir()
            copy.write_bytes(SAMPLE.read_bytes())
        done = self.report(*copies)
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()], ["fast_same", "promoted_same"])

    def test_bad_files_are_one_line(self):
        rows = list(csv.reader(SAMPLE.read_text().splitlines()))
        at = rows[0].index("cublas_over_tuned")

        def text(rows):
            out = io.StringIO()
            csv.writer(out).writerows(rows)
            return out.getvalue()

        broken = [row[:at] + ["fast"] + row[at + 1:] for row in rows[1:]]
        problem = rows[0].index("problem")
        for content, what in (("", "is empty"), (text(rows[:1]), "no rows"), ("\0\xff\n1\n", "lacks the columns"),
                              (text(row[:at] + row[at + 1:] for row in rows), "lacks the column cublas_over_tuned:"),
                              (text(rows[:1] + broken), 'row 2: cublas_over_tuned is "fast"'),
                              (text(rows[:1] + [rows[1][:problem] + ["m=1"] + rows[1][problem + 1:]]), "row 2: the problem's a="),
                              (text([rows[0], rows[-2]]), "timed on a GPU")):
            path = self.out / "broken.csv"
            path.write_text(content, encoding="latin-1", newline="")
            done = self.report(path)
            self.assertEqual((done.returncode, done.stdout), (1, ""), content)
            self.assertRegex(done.stderr, r"\Areport\.py: error: [^\n]*broken\.csv[^\n]*: [^\n]+\n\Z")
            if "\xff" not in content:
                self.assertIn(what, done.stderr)
        self.assertIn("lacks the columns feature", self.report(SAMPLE, "--ablation", SAMPLE).stderr)
        self.assertIn("cannot be read", self.report(self.out / "none.csv").stderr)


class Record(Case):
    """The page of a record; needs no matplotlib."""

    def setUp(self):
        super().setUp()
        self.record = self.out / "gpu"
        self.record.mkdir()
        (self.record / "sample.csv").write_bytes(SAMPLE.read_bytes())
        (self.record / "ablation.csv").write_bytes(ABLATION.read_bytes())
        (self.record / "summary.txt").write_text(SUMMARY)

    def run_record(self, *arguments):
        command = [sys.executable, "-B", ROOT / "tools/report.py", "record", self.record, "--no-picture", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def test_the_page_says_what_the_files_say(self):
        done = self.run_record()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        page = (self.out / "README.md").read_text(encoding="utf-8")
        for line in ("One NVIDIA H200, driver 1.2, CUDA 13.0, commit abcdef0, 2026-01-02; peers of the same run: cuBLAS 13.1",
                     "| Hopper | 300 ms | 2.3 to 2.52 ms |", "| portable, split_k | 2.50 us | 2.75 us | 0.25 us |",
                     "The same choices with the kernels of 0fedcba.", "| sample | 0.987 |  | 0.789 |",
                     "| bench sample | 12 s | ok, 12 of 12 shapes, tuned in 3 s |",
                     "| ping-pong | +0.1 % |"):
            self.assertIn(line, page)
        # Of cuBLAS, then of cuBLASLt: count, mean, p5, shapes behind, the worst.
        rows = re.findall(r"^\| sample \| 12 \| \*\*([\d.]+)\*\* \| .* \| ([\d.]+) \| (\d+) \| ([\d.]+) \| (\w+) \|$", page,
                          re.M)
        self.assertEqual(rows[:2], [("1.000", "0.500", "5", "0.250", "512x1024x512"),
                                    ("0.800", "0.400", "7", "0.200", "512x1024x512")])

    def test_a_page_that_is_not_theirs_is_found(self):
        self.run_record()
        self.assertEqual(self.run_record("--check").returncode, 0)
        page = self.out / "README.md"
        page.write_text(page.read_text().replace("0.987", "0.988"))
        done = self.run_record("--check")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"\Areport\.py: error: [^\n]*README\.md is not what the files of [^\n]*\n\Z")
        (self.record / "summary.txt").write_text("nothing\n")
        self.assertIn("summary.txt has no run", self.run_record().stderr)


    def test_both_protocols_stand_below_each_other(self):
        rows = list(csv.DictReader(SAMPLE.read_text().splitlines()))
        for row in rows[:3]:
            row["tuned_us"] = "4"
        with (self.record / "sample.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, ["protocol", *rows[0]])
            writer.writeheader()
            for row in rows:
                writer.writerow({"protocol": "rep", **row})
                mixed = {"protocol": "mix", **row}
                for name in ("cublas_over_tuned", "cublaslt_over_tuned"):
                    mixed[name] = row[name] and str(float(row[name]) / 2)
                mixed["tuned_us"] = row["tuned_us"] and str(2 * float(row["tuned_us"]))
                writer.writerow(mixed)
        done = self.run_record()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        page = (self.out / "README.md").read_text(encoding="utf-8")
        self.assertIn("back to back and between small kernels of someone else's: 1.000 and 0.500 (sample).", page)
        found = re.findall(r"^\| ([^|]*) \| (rep|mix) \| (\d+) \| \*\*([\d.]+)\*\* \[[^]]*\] \| ([\d.]+) \| ([\d.]+) \((\w+)\) "
                           r"\| \*\*([\d.]+)\*\*", page, re.M)
        self.assertEqual(found[0], ("sample", "rep", "12", "1.000", "0.500", "0.250", "512x1024x512", "0.800"))
        self.assertEqual(found[1], ("", "mix", "12", "0.500", "0.250", "0.125", "512x1024x512", "0.400"))
        # What is below 5 us by rep is the same by mix, where it takes twice as long.
        self.assertEqual([row[:3] for row in found[2:]], [("- of these below 5 us", "rep", "3"), ("", "mix", "3")])
        self.assertEqual(float(found[3][3]), float(found[2][3]) / 2)
        # Everything else is of rep.
        self.assertEqual(len(re.findall(r"^\| sample \| 12 \| \*\*1\.000", page, re.M)), 1)
        lines = self.report(self.record / "sample.csv").stdout.splitlines()
        self.assertEqual([line.split(" [")[0] for line in lines], ["sample 12 cublas 1.000", "sample_mix 12 cublas 0.500"])


    def test_regret_by_each_protocol(self):
        rows = "m,n,k,protocol,model_us,model_config,tuned_us,tuned_config,others,check\n"
        for m, rep, mix in ((100, 12, 15), (200, 12, 15)):
            rows += f"{m},8,16,rep,{rep},a,10,b,,ok\n{m},8,16,mix,{mix},a,10,b,,ok\n"
        (self.record / "regret.csv").write_text(rows)
        done = self.run_record()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        page = (self.out / "README.md").read_text(encoding="utf-8")
        lines = [line for line in page.splitlines() if line.endswith("x8x16 |")]
        self.assertEqual(lines, ["| the cost model, constants fitted to the device | 2 | 1.200 | 1.200 | 1.200 | 200x8x16 |",
                                 "| measured, default budget | 2 | 1.000 | 1.000 | 1.000 | 200x8x16 |",
                                 "| the cost model, constants fitted to the device, mix | 2 | 1.500 | 1.500 | 1.500 | 200x8x16 |",
                                 "| measured, default budget, mix | 2 | 1.000 | 1.000 | 1.000 | 200x8x16 |"])
        page = self.page("--regret", self.record / "regret.csv", "--no-plots")
        self.assertIn("constants fitted to the device, mix", page)


class Published(Case):
    """Beside what others publish; needs no matplotlib."""

    def setUp(self):
        super().setUp()
        # Two shapes below 10^11 operations and one above; of rep ours are as given, of mix half of that.
        sample = list(csv.DictReader(SAMPLE.read_text().splitlines()))[0]
        self.shapes = {(64, 128, 256): (2, 1), (512, 512, 512): (0.5, 0.94), (8192, 8192, 1024): (1.2, 0.95)}
        self.csv = self.out / "ours.csv"
        with self.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["protocol", *sample])
            writer.writeheader()
            for (m, n, k), (cublas, cublaslt) in self.shapes.items():
                problem = f"m={m} n={n} k={k} a=f16 b=f16 d=f16"
                for protocol, factor in (("rep", 1), ("mix", 0.5)):
                    writer.writerow({**sample, "protocol": protocol, "m": m, "n": n, "k": k, "problem": problem,
                                     "cublas_over_tuned": factor * cublas, "cublaslt_over_tuned": factor * cublaslt})
        self.published = self.out / "published.csv"
        self.published.write_text("# From nowhere.\n# Twice.\nm,n,k,offline_cublas_nn,server_cublaslt_nn\n"
                                  "64,128,256,4,3\n512,512,512,1,0.9\n64,64,64,100,100\n8192,8192,1024,0.9,0.8\n")

    def published_report(self, *arguments):
        command = [sys.executable, "-B", ROOT / "tools/report.py", "published", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    def test_ours_and_theirs_of_the_same_shapes(self):
        done = self.published_report(self.csv, "--published", self.published)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertTrue(done.stdout.startswith("Ours: NVIDIA H200, a=f16 b=f16 d=f16. Published: published.csv."))
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line.startswith("|")]
        self.assertEqual(rows[0], ["operations", "whose", "over", "shapes", "mean", "below 0.95"])
        ours = [["ours, rep", "cuBLAS default"], ["ours, rep", "best of 16 of cuBLASLt"], ["ours, mix", "cuBLAS default"],
                ["ours, mix", "best of 16 of cuBLASLt"]]
        theirs = [["published, offline", "cublas, nn"], ["published, server", "cublaslt, nn"]]
        self.assertEqual([row[1:3] for row in rows[2:]], 3 * (ours + theirs))
        self.assertEqual([row[0] for row in rows[2::6]], ["all", "below 10^11 operations", "10^11 and more"])
        self.assertEqual([row[3:] for row in rows[2:8]],
                         [["3", "1.063", "1"], ["3", "0.963", "1"], ["3", "0.531", "2"], ["3", "0.481", "3"],
                          ["3", "1.533", "1"], ["3", "1.293", "2"]])
        self.assertEqual([row[3:] for row in rows[8:14]],
                         [["2", "1.000", "1"], ["2", "0.970", "1"], ["2", "0.500", "1"], ["2", "0.485", "2"],
                          ["2", "2.000", "0"], ["2", "1.643", "1"]])
        self.assertEqual([row[3:] for row in rows[14:20]],
                         [["1", "1.200", "0"], ["1", "0.950", "0"], ["1", "0.600", "1"], ["1", "0.475", "1"],
                          ["1", "0.900", "1"], ["1", "0.800", "1"]])

    def test_what_is_not_published_is_one_line(self):
        text = self.published.read_text()
        for published, what in ((text.replace("512,512,512,1,0.9\n", ""), "has no 512x512x512: measure shapes that are"),
                                (text.replace("0.8\n", "\n"), "row 4 of its table lacks a number"),
                                (text.replace("100,100", "100,x"), 'server_cublaslt_nn is "x"')):
            self.published.write_text(published)
            done = self.published_report(self.csv, "--published", self.published)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, r"\Areport\.py: error: [^\n]*published\.csv[^\n]*\n\Z")
            self.assertIn(what, done.stderr)

    def test_all_of_the_grid_is_there_and_what_is_drawn_of_it(self):
        lines = (ROOT / "tools/results/cuda_l2_published.csv").read_text().splitlines()
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
        shapes = {tuple(int(row[size]) for size in "mnk") for row in rows}
        sizes = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384]
        self.assertEqual(shapes, {(m, n, k) for m in sizes for n in sizes for k in sizes})
        self.assertEqual(len(rows), 1000)
        for row in rows:  # a peer's faster layout is not slower than one of its layouts; rounded to three digits
            self.assertLessEqual(float(row["offline_cublas_max"]), float(row["offline_cublas_nn"]) + 0.001)
        drawn = (ROOT / "tests/corpora/cuda_l2_120.txt").read_text().splitlines()[1:]
        self.assertLessEqual({tuple(map(int, line.split())) for line in drawn}, shapes)
        # README of the repository: +17.5 % over cuBLAS and +7.0 % over the tuned cuBLASLt, offline, arithmetic means.
        for column, mean in (("offline_cublas_max", 1.175), ("offline_cublaslt_max", 1.070)):
            self.assertAlmostEqual(sum(float(row[column]) for row in rows) / 1000, mean, delta=0.0006)


class Figures(Case):
    def test_a_record_has_one_picture_that_knows_its_source(self):
        record = self.out / "gpu"
        record.mkdir()
        (record / "sample.csv").write_bytes(SAMPLE.read_bytes())
        (record / "summary.txt").write_text(SUMMARY)
        command = [sys.executable, "-B", ROOT / "tools/report.py", "record", record]
        self.assertEqual(subprocess.run(command, stdout=subprocess.DEVNULL).returncode, 0)
        self.assertEqual([path.name for path in (record / "plots").iterdir()], ["overview.png"])
        self.assertEqual(subprocess.run([*command, "--check"]).returncode, 0)
        lines = (record / "sample.csv").read_text().splitlines()
        (record / "sample.csv").write_text("\n".join(lines[:-3]) + "\n")
        subprocess.run([*command, "--no-picture"], stdout=subprocess.DEVNULL)
        done = subprocess.run([*command, "--check"], capture_output=True, text=True)
        self.assertIn("overview.png was drawn from other files", done.stderr)

    def test_the_figures_are_in_the_folder_and_in_the_page(self):
        page = self.page("--png", self.out / "png")
        self.check_self_contained(page)
        kinds = ("intensity", "histogram", "roofline", "configurations")
        names = sorted(path.name for path in (self.out / "png").iterdir())
        self.assertEqual(names, sorted(["overview.png"] + [f"sample_{kind}.png" for kind in kinds]))
        for path in (self.out / "png").iterdir():
            self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
            self.assertGreater(path.stat().st_size, 8000)
        self.assertEqual(page.count("<img "), len(names))

    def test_a_single_shape_without_peers(self):
        rows = list(csv.DictReader(SAMPLE.read_text().splitlines()))[:1]
        for name in rows[0]:
            if name.startswith("cublas"):
                rows[0][name] = ""
        path = self.out / "alone.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        done = self.report(path, "--png", self.out / "png", "--html", self.out / "page.html")
        self.assertEqual((done.returncode, done.stdout), (0, "alone 1 cublas - cublaslt -\n"), done.stderr)
        self.assertEqual([p.name for p in (self.out / "png").iterdir()], ["alone_roofline.png"])


if __name__ == "__main__":
    if "Figures" in sys.argv:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            sys.exit("SKIPPED: matplotlib is missing: install python3-matplotlib")
    unittest.main()
