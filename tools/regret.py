#!/usr/bin/env python3
"""How far choices are from the best known, from `jitgemm bench --finalists N --csv FILE`.

usage: regret.py FILE.csv...

The regret of a choice is its time over the least of all arms that were timed in the last round of measurements: every choice and
the finalists. Geometric mean, 95th percentile and worst over the shapes. `repeats` are arms with the configuration of the tuned
choice: the largest over the least of their times and its own is the noise floor.
"""

import csv
import math
import sys

csv.field_size_limit(1 << 30)


def arms_of(row):
    """name -> (microseconds, configuration) of what was timed last."""
    arms = {}
    for entry in filter(None, (entry.strip() for entry in row["others"].split(";"))):
        name, us, _, config = entry.split(" ", 3)
        arms[name] = (float(us), config)
    for name in ("model", "tuned"):
        if row[f"{name}_us"]:
            arms[name] = (float(row[f"{name}_us"]), row[f"{name}_config"])
    return {name: arm for name, arm in arms.items() if arm[0] > 0}


def regrets_of(rows):
    """choice -> [(regret, shape)], with the noise floor as the choice "repeats"."""
    regrets = {}
    for row in rows:
        arms = arms_of(row)
        if not arms:
            continue
        shape = f"{row['m']}x{row['n']}x{row['k']}"
        least = min(us for us, _ in arms.values())
        repeats = [us for name, (us, _) in arms.items() if name.startswith("repeat")]
        if repeats:
            repeats.append(arms["tuned" if "tuned" in arms else "model"][0])
            regrets.setdefault("repeats", []).append((max(repeats) / min(repeats), shape))
        for name, (us, _) in arms.items():
            if not name.startswith(("repeat", "finalist")):
                regrets.setdefault(name, []).append((us / least, shape))
    return regrets


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, math.ceil(part * len(values)) - 1)]


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    rows = []
    for path in sys.argv[1:]:
        with open(path, newline="") as file:
            rows += [row for row in csv.DictReader(file) if row["check"] == "ok"]
    print(f"{'choice':<12} shapes  geomean     p95   worst")
    for name, pairs in regrets_of(rows).items():
        values = [regret for regret, _ in pairs]
        worst, shape = max(pairs)
        print(f"{name:<12} {len(values):>6} {geomean(values):>8.4f} {percentile(values, 0.95):>7.3f} {worst:>7.3f} {shape}")


if __name__ == "__main__":
    main()
