#!/usr/bin/env python3
"""Shapes that nobody has tuned for, or a sample of those that somebody has published.

  tools/draw_shapes.py SEED COUNT > shapes.txt
  tools/draw_shapes.py SEED COUNT --kind decode > shapes.txt
  tools/draw_shapes.py SEED COUNT --grid 64,128,256 > shapes.txt

SEED is hexadecimal, for example the first 8 digits of a commit; the same one gives the same shapes. Of the kinds,
  mixed    log-uniform in 128..8192, half of them multiples of 8, half of them anything
  aligned  log-uniform in 128..8192, multiples of 8
  decode   m log-uniform in 1..256, n and k in 1024..16384, multiples of 64
With --grid, m, n and k are of these sizes: all combinations, in the order of their product, are cut into COUNT equal parts, and
one is drawn from each, so that there are as many small ones as in the whole. They stand in an order that is drawn, too.
"""

import argparse
import itertools
import math
import random


def log_uniform(draw, least, most, multiple):
    """At least one multiple."""
    return max(1, round(least * 2 ** draw.uniform(0, math.log2(most / least)) / multiple)) * multiple


def drawn(draw, kind, count):
    for i in range(count):
        if kind == "decode":
            yield log_uniform(draw, 1, 256, 1), *(log_uniform(draw, 1024, 16384, 64) for _ in range(2))
        else:
            multiple = 8 if kind == "aligned" or i % 2 == 0 else 1
            yield tuple(log_uniform(draw, 128, 8192, multiple) for _ in range(3))


def of_grid(draw, sizes, count):
    shapes = list(itertools.product(sizes, repeat=3))
    draw.shuffle(shapes)  # equal products in no order
    shapes.sort(key=math.prod)
    bounds = [i * len(shapes) // count for i in range(count + 1)]
    sample = [draw.choice(shapes[begin:end]) for begin, end in zip(bounds, bounds[1:])]
    draw.shuffle(sample)
    return sample


def sizes_of(text):
    sizes = [int(size) for size in text.split(",")]
    if min(sizes) < 1 or len(set(sizes)) < len(sizes):
        raise ValueError
    return sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed")
    parser.add_argument("count", type=int)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--kind", choices=["mixed", "aligned", "decode"], default="mixed")
    which.add_argument("--grid", metavar="SIZES", help="positive numbers, with commas between them")
    arguments = parser.parse_args()
    try:
        draw = random.Random(int(arguments.seed, 16))
    except ValueError:
        parser.error(f"the seed is \"{arguments.seed}\": write hexadecimal digits")
    words = ["draw_shapes.py", arguments.seed, str(arguments.count)]
    if arguments.grid:
        try:
            sizes = sizes_of(arguments.grid)
        except ValueError:
            parser.error(f"the sizes are \"{arguments.grid}\": write different positive numbers with commas between them")
        if not 0 < arguments.count <= len(sizes) ** 3:
            parser.error(f"the count is {arguments.count}: write 1 to {len(sizes) ** 3}, as many as the sizes combine to")
        words += ["--grid", arguments.grid]
        shapes = of_grid(draw, sizes, arguments.count)
    else:
        words += ["--kind", arguments.kind] if arguments.kind != "mixed" else []
        shapes = drawn(draw, arguments.kind, arguments.count)
    print("#", *words)
    for shape in shapes:
        print(*shape)


if __name__ == "__main__":
    main()
