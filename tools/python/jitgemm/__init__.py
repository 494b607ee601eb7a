"""Matrix products by GPU kernels that are written, compiled and picked at run time.

    import jitgemm
    d = jitgemm.matmul(a, b, bias=bias, activation="gelu")      # arrays of torch, CuPy, JAX or NumPy

`Matmul` is the same for a shape that comes again and again, `explain` and `source` show what runs, `warm` and `tune`
prepare, `bench` compares with cuBLAS. `jitgemm.torch` has operators for torch.compile and autograd, and a Linear.
"""

from jitgemm._core import (Context, Counters, DeviceDescription, Matmul, Plan, Problem, TuneReport, TunedCandidate,
                           __version__, default_context, devices, explain, linear, matmul, source)

from jitgemm._bench import BenchRow, BenchTable, bench
from jitgemm._warm import warm

__all__ = ["BenchRow", "BenchTable", "Context", "Counters", "DeviceDescription", "Matmul", "Plan", "Problem", "TuneReport", "TunedCandidate",
           "__version__", "bench", "default_context", "devices", "explain", "linear", "matmul", "source", "warm"]
