"""How far choices are from the best known, from the rows of `jitgemm bench --finalists N --csv FILE`."""

import math

from reports.records import REP, BadInput, protocol_of, protocols_of, rows_of

WHAT = {
    "model": "the cost model, constants fitted to the device",
    "calibrated": "the cost model after tune --calibrate",
    "derived": "the cost model, constants derived from the device's attributes",
    "nearest": "the nearest of 200 tuned shapes",
    "tuned": "measured, default budget",
    "repeats": "noise: one configuration against itself",
}


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


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, math.ceil(part * len(values)) - 1)]


def title_of(name, protocol):
    return WHAT.get(name, name) + ("" if protocol == REP else f", {protocol}")


def read_regrets(*paths):
    """(choice, protocol) -> [(regret, shape)], rep first; BadInput if there are none."""
    rows = [row for path in paths for row in rows_of(path, ["m", "n", "k", "others", "check"]) if row["check"] == "ok"]
    path = ", ".join(map(str, paths))
    try:
        found = {protocol: regrets_of([row for row in rows if protocol_of(row) == protocol])
                 for protocol in protocols_of(rows)}
    except (ValueError, KeyError) as error:
        raise BadInput(f"{path} is not what `jitgemm bench --finalists N --csv FILE` writes: {error}") from error
    if not any(found.values()):
        raise BadInput(f"{path} has no shape with finalists: `jitgemm bench --finalists N --csv FILE` writes them")
    return {(name, protocol): regrets[name] for protocol, regrets in found.items() for name in [*WHAT, *regrets]
            if name in regrets}
