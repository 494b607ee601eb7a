#!/usr/bin/env python3
"""Tests of tools/sass_diff.py, with two `jitgemm` that print the SASS written here."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

from check_sass_table import ROOT, SOUND  # noqa: E402

OLD = SOUND.replace("UIADD3.64 UR20, UR12, 0x80, URZ", "ULDC.64 UR20, c[0x0][0x198]")
KERNELS = {  # configuration -> the new build's code
    "same": OLD,
    "renamed": OLD.replace(".L_x_2", ".L_y_77"),
    "moved": OLD.replace("[0x198]", "[0x1a0]"),
    "padded": OLD + "  NOP\n  NOP\n",
    "registers": OLD.replace("STG.E [R2], R3", "STG.E [R4], R5"),
    "target": OLD.replace("@P2 BRA `(.L_x_1)", "@P2 BRA `(.L_x_2)"),
    "grown": OLD.replace("STG.E [R2], R3", "FMUL R3, R3, R4\n  FADD R3, R3, R5\n  STG.E [R2], R3")
                .replace("I2F.U32.RP R1, R2", "NOP"),
    "shorter": OLD.replace("  ULDC.64 UR20, c[0x0][0x198]\n", ""),
    "broken": OLD,
}

# Each choice is its own kernel by its source, but twins.
JITGEMM = """#!/bin/sh
here=$(dirname "$0")
config=$(echo "$*" | sed 's/.*--config sm90 \\([a-z]*\\).*/\\1/')
case "$*" in
  *"--format cuda"*) echo "$config $*" | sed 's/twin/same/; s/ .*packing.*/ packing/; s/ .*gemm.*//' ;;
  explain*) echo '{"registers": 168, "spill_bytes": 0}' ;;
  *) [ -e "$here/$config.sass" ] || { echo "jitgemm: error: ptxas failed" >&2; exit 1; }; cat "$here/$config.sass" ;;
esac
"""


class SassDiff(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for side in ("old", "new"):
            (self.folder / side).mkdir()
            self.command(f"{side}/jitgemm", JITGEMM)
            for name, code in KERNELS.items():
                if (side, name) != ("new", "broken"):
                    self.write(side, name, OLD if side == "old" else code)
        self.command("nvdisasm", "#!/bin/sh\n")

    def write(self, side, name, code):
        lines = [line if line.startswith(".") else f"        /*{16 * i:04x}*/ {line:40} ;"
                 for i, line in enumerate(code.strip().splitlines())]
        (self.folder / side / f"{name}.sass").write_text("\n".join(lines) + "\n")

    def command(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def diff(self, *configs, options=()):
        path = self.folder / "bench.csv"
        path.write_text("problem,model_config,tuned_config\n" +
                        "".join(f"m=64 n=8 k=16 a=f16 b=f16 d=f16,{config},\n" for config in configs))
        command = [sys.executable, "-B", ROOT / "tools/sass_diff.py", self.folder / "old/jitgemm", self.folder / "new/jitgemm",
                   path, *options]
        environment = dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}")
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        counts = [int(line.split()[1]) for line in done.stdout.splitlines() if " kernels: " in line]
        rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
        return done, counts, rows[2:]

    def test_how_far_a_difference_goes(self):
        for config, kind in (("same", 0), ("renamed", 0), ("padded", 0), ("moved", 1), ("registers", 2), ("target", 2), ("grown", 3),
                             ("shorter", 3)):
            done, counts, rows = self.diff(f"sm90 {config}")
            self.assertEqual((done.returncode, done.stderr), (0, ""), config)
            self.assertEqual(counts, [int(i == kind) for i in range(4)], config)
            self.assertEqual(len(rows), int(kind == 3), config)

    def test_what_changed_is_named(self):
        done, _, rows = self.diff("sm90 same", "sm90 grown", "sm90 shorter")
        self.assertEqual([row[2] for row in rows], ["`sm90 grown`", "`sm90 shorter`"])
        self.assertEqual(rows[0][9], "+1 FADD, +1 FMUL, -1 I2F.U32.RP, +1 NOP")
        self.assertEqual(rows[1][5], "6 -> 5")
        self.assertEqual(rows[1][9], "-1 ULDC.64")
        self.assertEqual(rows[0][5:8], ["6", "9", "168"])

    def test_choices_of_one_source_are_one_kernel(self):
        done, counts, _ = self.diff("sm90 same", "sm90 twin", "sm90 grown")
        self.assertEqual(counts, [1, 0, 0, 1])
        done, counts, _ = self.diff("sm90 same pack=ab")
        self.assertEqual(counts, [2, 0, 0, 0])
        done, counts, _ = self.diff("sm90 same", "sm90 moved", "sm90 grown", options=["--sample", "2"])
        self.assertEqual(sum(counts), 2)
        self.assertIn("2 of 3 kernels, drawn with seed 1", done.stdout)

    def test_what_does_not_compile_fails(self):
        done, counts, _ = self.diff("sm90 same", "sm90 broken")
        self.assertEqual((done.returncode, counts), (1, [1, 0, 0, 0]))
        self.assertRegex(done.stdout, r"does not compile: `m=64 .*` `sm90 broken`: new: jitgemm: error: ptxas failed")

    def test_errors_are_one_line(self):
        done = subprocess.run([sys.executable, "-B", ROOT / "tools/sass_diff.py", "nowhere", "nowhere", "nowhere.csv"],
                              capture_output=True, text=True, env=dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}"))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
