"""The compilers that pip installs beside us: NVRTC, and zig for the emulator."""

from __future__ import annotations

import os
import sys

from jitgemm._core import set_environment_default

# What is looked for, relative to where packages are, and the variable that names such a thing to the library.
PLACES = (
    ("JITGEMM_NVRTC", ("nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")),
    ("JITGEMM_FALLBACK_CXX", ("ziglang/zig",)),
)


def set_defaults() -> None:
    """Names those that are there to the library. Variables of the environment still come first."""
    for variable, candidates in PLACES:
        found = next((path for candidate in candidates for folder in sys.path
                      if os.path.isfile(path := os.path.join(folder, candidate))), None)
        if found is not None:
            set_environment_default(variable, found)
