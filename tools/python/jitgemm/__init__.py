"""Matrix products by GPU kernels that are written, compiled and picked at run time.

    import jitgemm
    d = jitgemm.matmul(a, b, bias=bias, activation="gelu")      # arrays of torch, CuPy, JAX or NumPy

`Epilogue` puts a function of your own in the place of bias and activation; `epilogues` has some to begin with.
`Matmul` is the same for a shape that comes again and again, `explain` and `source` show what runs, `warm` and `tune`
prepare, `bench` compares with cuBLAS, `block_scales` lays out scales of 8-bit floats' blocks, `TensorParallel` multiplies on
several GPUs together. `jitgemm.torch` has operators for torch.compile and autograd, and a Linear.
"""

from jitgemm._interpreter import require_main

require_main()  # before the native part is loaded

from jitgemm import _compile, _compilers
from jitgemm._core import (Context, Counters, DeviceDescription, Epilogue, EpilogueOperand, Matmul, MatrixPointers,
                           ParallelPlan, Plan, Problem, TensorParallel, TunedCandidate, TuneReport, default_context, devices, explain,
                           grouped_mm, set_default_context, source)

TYPE_CHECKING = False  # as typing has it, without the time to import that
if TYPE_CHECKING:
    from jitgemm import cache, epilogues, torch, wisdom
    from jitgemm._bench import BenchRow, BenchTable, bench
    from jitgemm._core import linear, matmul
    from jitgemm._scales import block_scales
    from jitgemm._warm import warm

    __version__: str
else:
    from jitgemm._core import __version__
    from jitgemm._core import _linear as linear
    from jitgemm._core import _matmul as matmul

__all__ = ["BenchRow", "BenchTable", "Context", "Counters", "DeviceDescription", "Epilogue", "EpilogueOperand",
           "Matmul", "MatrixPointers", "ParallelPlan", "Plan", "Problem", "TensorParallel", "TuneReport", "TunedCandidate", "__version__",
           "bench", "block_scales", "cache", "default_context", "devices", "epilogues", "explain", "grouped_mm", "linear",
           "matmul", "set_default_context", "source", "warm", "wisdom"]  # not torch, which would hide torch itself

_LATER = {"bench": "_bench", "BenchRow": "_bench", "BenchTable": "_bench", "block_scales": "_scales",
          "warm": "_warm"}


def __dir__() -> list[str]:
    """With what comes on first use."""
    import importlib.util
    import sys

    has_torch = sys.modules.get("torch") or importlib.util.find_spec("torch")
    return sorted({*globals(), *__all__, *(["torch"] if has_torch else [])})


def __getattr__(name: str) -> object:
    """What takes time to import, on first use."""
    import importlib

    if name in _LATER:
        return getattr(importlib.import_module(f"jitgemm.{_LATER[name]}"), name)
    if name in ("cache", "epilogues", "wisdom"):
        return importlib.import_module(f"jitgemm.{name}")
    if name == "torch":
        try:
            return importlib.import_module("jitgemm.torch")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise AttributeError("jitgemm.torch needs torch, which is not there; install it") from None
    raise AttributeError(f"module 'jitgemm' has no attribute '{name}'")


_compilers.set_defaults()
_compile.watch()
