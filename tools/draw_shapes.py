#!/usr/bin/env python3
"""Shapes that nobody has tuned for: log-uniform in 128..8192, half of them multiples of 8, half of them anything.

usage: draw_shapes.py SEED COUNT > shapes.txt

SEED is hexadecimal, for example the first 8 digits of a commit; the same one gives the same shapes.
"""

import random
import sys


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    seed, count = int(sys.argv[1], 16), int(sys.argv[2])
    draw = random.Random(seed)
    print(f"# draw_shapes.py {sys.argv[1]} {count}")
    for i in range(count):
        multiple = 8 if i % 2 == 0 else 1
        print(*(round(128 * 2 ** draw.uniform(0, 6) / multiple) * multiple for _ in range(3)))


if __name__ == "__main__":
    main()
