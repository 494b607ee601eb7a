#!/usr/bin/env python3
"""What the first call with an epilogue costs that nobody has compiled: the plain product has been called before, and nothing
is tuned.

    tools/python/examples/first_use.py [FILE...]      # by default all of tools/examples/epilogues

Of each text twice, with a comment that no text had before. On a GPU NVRTC compiles it, else the emulator's compiler.
"""
from __future__ import annotations

import argparse
import pathlib
import re
import statistics
import sys
import time

EPILOGUES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "epilogues"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="with an epilogue each [those of tools/examples/epilogues]")
    return parser.parse_args()


ARGUMENTS = parse() if __name__ == "__main__" else None  # --help needs none of what is imported now

import torch  # noqa: E402

import jitgemm  # noqa: E402

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
INPUT = re.compile(r"// operand in (\w+) (scalar|along_m|along_n|matrix) ?(\w*)")


def inputs_of(text: str, m: int, n: int, device: str) -> dict[str, torch.Tensor | float]:
    width = n // 2 if "// pairs" in text else n
    shapes = {"along_m": (m,), "along_n": (width,), "matrix": (m, width)}
    return {name: 0.5 if shape == "scalar" else torch.ones(shapes[shape], dtype=TYPES[type_], device=device)
            for name, shape, type_ in INPUT.findall(text)}


def main(arguments: argparse.Namespace) -> int:
    gpu = torch.cuda.is_available()
    device = "cuda" if gpu else "cpu"
    if gpu:
        jitgemm.set_default_context(jitgemm.Context("cuda", tuning="cached"))
    m, n, k = (512, 4096, 4096) if gpu else (32, 64, 64)
    a, b = torch.randn(m, k, device=device).bfloat16(), torch.randn(n, k, device=device).bfloat16()
    all_times = []
    with torch.no_grad():
        jitgemm.matmul(a, b.t())
        for path in arguments.files or sorted(EPILOGUES.glob("*.txt")):
            text, times = path.read_text(), []
            operands = inputs_of(text, m, n, device)
            for _ in range(2):
                epilogue = jitgemm.Epilogue(f"{text}// {time.time_ns()}\n")
                if gpu:
                    torch.cuda.synchronize()
                begin = time.perf_counter()
                jitgemm.matmul(a, b.t(), epilogue=epilogue, operands=operands)
                if gpu:
                    torch.cuda.synchronize()
                times.append(time.perf_counter() - begin)
            all_times += times
            print(f"{path.stem:24}" + "".join(f"{seconds * 1e3:7.0f} ms" for seconds in times), flush=True)
    print(f"{torch.cuda.get_device_name() if gpu else 'emulator'}: median {statistics.median(all_times) * 1e3:.0f} ms, "
          f"{min(all_times) * 1e3:.0f} to {max(all_times) * 1e3:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
