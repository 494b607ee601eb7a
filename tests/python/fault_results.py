"""What users may see of calls that fail: tools/results/faults.md, and lines in the log."""
import pathlib
import re

import pytest
from fake_cuda import arm
from fault_scenario import World


def recorded() -> dict[tuple[str, str], set[str]]:
    """What users may see of a call that answers a failure."""
    root = pathlib.Path(__file__).parents[2]
    table: dict[tuple[str, str], set[str]] = {}
    for line in (root / "tools/results/faults.md").read_text().splitlines():
        cells = line.split(" | ")
        if line.startswith("| ") and len(cells) == 4:
            table.setdefault((cells[0][2:], cells[1]), set()).add(cells[3].removesuffix(" |"))
    return table


RECORDED = recorded()


def without_names(text: str, world: World) -> str:
    """A text without what differs from one machine or problem to the next, as faults.md has it."""
    text = re.sub(re.escape(world.folder) + r"/\S+", "(file)", text)
    text = re.sub(r"of \d+ bytes", "of (n) bytes", text)
    text = re.sub(r"Tiled of [^(]*\([^)]*\)", "Tiled of (a matrix)", text)
    return re.sub(r"(tuning skipped|tuning of) [^:]*?(:| given up| goes without)", r"\1 (it)\2", text)


class Log:
    """What the library logs, line by line."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.capfd = capfd

    def said(self) -> list[str]:
        lines = [line.partition(" jitgemm ")[2] for line in self.capfd.readouterr().err.splitlines()]
        return [line for line in lines if not line.startswith("info: tuned ")]


@pytest.fixture
def log(capfd: pytest.CaptureFixture[str]) -> Log:
    arm()
    return Log(capfd)
