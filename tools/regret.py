#!/usr/bin/env python3
"""How far choices are from the best known, from `jitgemm bench --finalists N --csv FILE`.

  tools/regret.py FILE.csv...

The regret of a choice is its time over the least of all arms that were timed in the last round of measurements: every choice and
the finalists; each protocol by itself. Geometric mean, 95th percentile and worst over the shapes. `repeats` are arms with the
configuration of the tuned choice: the largest over the least of their times and its own is the noise floor.
"""

import argparse
import sys
from pathlib import Path

sys.dont_write_bytecode = True

from reports.records import BadInput, geomean  # noqa: E402
from reports.regret import percentile, read_regrets  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", type=Path, nargs="+")
    try:
        regrets = read_regrets(*parser.parse_args().csv)
    except BadInput as error:
        sys.exit(f"regret.py: error: {error}")
    print(f"{'choice':<12} protocol shapes  geomean     p95   worst")
    for (name, protocol), pairs in regrets.items():
        values = [regret for regret, _ in pairs]
        worst, shape = max(pairs)
        print(f"{name:<12} {protocol:<8} {len(values):>6} {geomean(values):>8.4f} {percentile(values, 0.95):>7.3f} "
              f"{worst:>7.3f} {shape}")


if __name__ == "__main__":
    main()
