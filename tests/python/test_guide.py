"""The guide's blocks, in order, in one process and a folder of its own."""
import os
import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(os.environ.get("JITGEMM_GUIDE", Path(__file__).parents[2] / "tools/python/guide.md"))


def test_every_block_runs(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 10
    program = tmp_path / "guide.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "ignore", str(program)], cwd=tmp_path, capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "geometric mean of" in done.stdout and "is not the last but one of b" in done.stdout
    assert (tmp_path / "speedups.csv").exists()
