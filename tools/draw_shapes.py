#!/usr/bin/env python3
"""Shapes that nobody has tuned for: log-uniform in 128..8192, half of them multiples of 8, half of them anything.

  tools/draw_shapes.py SEED COUNT > shapes.txt

SEED is hexadecimal, for example the first 8 digits of a commit; the same one gives the same shapes.
"""

import argparse
import random


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed")
    parser.add_argument("count", type=int)
    arguments = parser.parse_args()
    try:
        draw = random.Random(int(arguments.seed, 16))
    except ValueError:
        parser.error(f"the seed is \"{arguments.seed}\": write hexadecimal digits")
    print(f"# draw_shapes.py {arguments.seed} {arguments.count}")
    for i in range(arguments.count):
        multiple = 8 if i % 2 == 0 else 1
        print(*(round(128 * 2 ** draw.uniform(0, 6) / multiple) * multiple for _ in range(3)))


if __name__ == "__main__":
    main()
