#!/usr/bin/env python3
"""Tests of tools/sass_table.py, with a `jitgemm` that prints the SASS written here."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A loop over tiles around one over k-blocks, then the producer's. Waits retry behind the end, and jump back from there.
SOUND = """
.text.gemm:
  BSSY B0, `(.L_x_0)
  @!P0 EXIT
  BRA P3, `(.L_x_5)
.L_x_1:
  I2F.U32.RP R1, R2
  MUFU.RCP R1, R1
.L_x_2:
  SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR17], R3
  @!P0 BRA `(.L_x_8)
.L_x_3:
  HGMMA.64x32x16.F32 R24, gdesc[UR12], R24, UP0
  UIADD3.64 UR20, UR12, 0x80, URZ
  HGMMA.64x32x16.F32 R24, gdesc[UR20], R24, gsb0
  @!P0 BRA `(.L_x_2)
  HGMMA.64x32x16.F32 R24, gdesc[UR20], R24, gsb0
  STG.E [R2], R3
  @P2 BRA `(.L_x_1)
.L_x_0:
  EXIT
.L_x_5:
  SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR17+0x8], R3
  @!P0 BRA `(.L_x_9)
.L_x_10:
  PLOP3.LUT P0, PT, PT, PT, PT, 0x80, 0x0
.L_x_6:
  @P0 ELECT P1, URZ, PT
  UTMALDG.3D [UR40], [UR22]
  @P0 BRA.U.ANY `(.L_x_6)
.L_x_7:
  UTMALDG.3D.MULTICAST [UR16], [UR22], UR14
  @P0 BRA.U.ANY `(.L_x_7)
  @P1 BRA `(.L_x_5)
  EXIT
.L_x_8:
  @!P0 BRA `(.L_x_8)
  BRA `(.L_x_3)
.L_x_9:
  @!P0 BRA `(.L_x_9)
  BRA `(.L_x_10)
.L_x_11:
  BRA `(.L_x_11)
"""
SPILLING = SOUND.replace("STG.E [R2], R3", "STL [R1], R3").replace("UIADD3.64 UR20, UR12, 0x80, URZ", "LDL.LU R3, [R1]")
# Around its wgmma are only jumps back from behind the end.
UNROLLED = SOUND.replace("  @!P0 BRA `(.L_x_2)\n", "").replace("  @P2 BRA `(.L_x_1)\n", "")
PORTABLE = SOUND.replace("HGMMA.64x32x16.F32", "HMMA.16816.F32")

JITGEMM = """#!/bin/sh
here=$(dirname "$0")
config=$(echo "$*" | sed 's/.*--config sm[0-9]* \\([a-z]*\\).*/\\1/')
if [ "$config" = broken ]; then echo 'jitgemm: error: ptxas failed: try it' >&2; echo C7510 >&2; exit 1; fi
if [ "$1" = explain ]; then cat "$here/$config.json"; else cat "$here/$config.sass"; fi
"""


class SassTable(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.command("jitgemm", JITGEMM)
        self.command("nvdisasm", "#!/bin/sh\n")
        kernels = {"sound": (SOUND, 0), "twin": (SOUND, 0), "unrolled": (UNROLLED, 0), "portable": (PORTABLE, 0),
                   "spilling": (SPILLING, 0), "spilled": (PORTABLE, 16)}
        for name, (code, spill_bytes) in kernels.items():
            lines = [line if line.startswith(".") else f"        /*{16 * i:04x}*/ {line:40} ;"
                     for i, line in enumerate(code.strip().splitlines())]
            (self.folder / f"{name}.sass").write_text("\n".join(lines) + "\n")
            (self.folder / f"{name}.json").write_text(f'{{"registers": 168, "spill_bytes": {spill_bytes}}}')

    def command(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def table(self, *arguments, path=None):
        command = [sys.executable, "-B", ROOT / "tools/sass_table.py", *arguments]
        environment = dict(os.environ, PATH=path or f"{self.folder}:{os.environ['PATH']}")
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        lines = [line.strip("| ") for line in done.stdout.splitlines() if line.startswith("|")]
        return done, [line.split(" | ") for line in lines[2:]]

    def of(self, *configs, options=()):
        path = self.folder / "bench.csv"
        rows = [f"m={64 * i} n=8 k=16 a=f16 b=f16 d=f16,{config}\n" for i, config in enumerate(configs, 1)]
        path.write_text("problem,tuned_config\n" + "".join(rows))
        return self.table(self.folder / "jitgemm", path, *options)

    def test_the_loops_of_a_kernel(self):
        done, rows = self.of("sm80 portable", "sm90 sound", "sm90 twin", "sm90 sound")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(rows, [
            ["3", "`a=f16 b=f16 d=f16`", "`sm90 sound` and 1 more", "168", "0", "0", "2 HGMMA.64x32x16.F32",
             "6 (3.0 each)", "1 UTMALDG.3D, 1 UTMALDG.3D.MULTICAST, 2 in BRA.U.ANY", "9", "1", "1"],
            ["1", "`a=f16 b=f16 d=f16`", "`sm80 portable`", "168", "0", "0", "2 HMMA.16816.F32", "6 (3.0 each)",
             "1 UTMALDG.3D, 1 UTMALDG.3D.MULTICAST, 2 in BRA.U.ANY", "9", "1", "1"]])
        self.assertEqual(done.stdout.splitlines()[-1], "2 kernels for 4 shapes: 1 with wgmma in the main loop, "
                         "1 with mma, 0 with neither, 0 that spill, 0 that do not compile")

    def test_rows_left_out_count(self):
        done, rows = self.of("sm80 portable", "sm90 sound", "sm90 unrolled", "sm90 sound", options=["--top", "1"])
        self.assertEqual((done.returncode, len(rows)), (1, 1))
        self.assertIn("`sm90 unrolled` has no tensor-core", done.stdout)
        self.assertIn("\n3 kernels for 4 shapes", done.stdout)
        done, rows = self.of("sm80 portable", "sm90 sound", "sm90 sound", options=["--limit", "1"])
        self.assertEqual((done.returncode, len(rows)), (0, 1))
        self.assertIn("\n1 kernels for 2 shapes", done.stdout)

    def test_what_is_wrong_fails(self):
        for config, line, verdict in (
                ("sm90 spilling", "spills 0 bytes and has 2 local accesses, 1 in the main loop, 0 in the producer's",
                 "1 that spill"),
                ("sm80 spilled", "spills 16 bytes and has 0 local accesses, 0 in the main loop, 0 in the producer's",
                 "1 that spill"),
                ("sm90 unrolled", "has no tensor-core instruction in its main loop", "1 with neither"),
                ("sm90 portable", "has no tensor-core instruction in its main loop", "1 with neither"),
                ("sm90 broken", "does not compile: jitgemm: error: ptxas failed: try it", "1 that do not compile")):
            done, rows = self.of("sm90 sound", config)
            self.assertEqual((done.returncode, done.stderr), (1, ""), config)
            self.assertEqual(len(rows), 1 if "broken" in config else 2)
            self.assertRegex(done.stdout, rf"(?m)^- `[^`]+` `{config}` {re.escape(line)}$")
            self.assertIn(verdict, done.stdout.splitlines()[-1])
            self.assertIn("\n2 kernels for 2 shapes: ", done.stdout)

    def test_errors_are_one_line(self):
        jitgemm, path = self.folder / "jitgemm", self.folder / "bad.csv"
        good = "problem,tuned_config\nm=1 n=1 k=1 a=f16 b=f16 d=f16,sm90 sound\n"
        for content, command, found_on, what in (
                ("", jitgemm, None, "is empty"),
                ("a,b\n1,2\n", jitgemm, None, "lacks the columns problem, tuned_config"),
                ("problem,tuned_config\nm=1,\n", jitgemm, None, "has no tuned configuration"),
                (good, "no/jitgemm", None, "is no command"), (good, jitgemm, "/none", "no nvdisasm on PATH")):
            path.write_text(content)
            done, _ = self.table(command, path, path=found_on)
            self.assertEqual((done.returncode, done.stdout), (1, ""), what)
            self.assertRegex(done.stderr, r"\Asass_table\.py: error: [^\n]+: [^\n]+\n\Z")
            self.assertIn(what, done.stderr)


if __name__ == "__main__":
    unittest.main()
