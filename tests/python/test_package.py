"""What the package is to Python: where it may be imported, and its names."""
import importlib.util
import subprocess
import sys
import textwrap

import jitgemm
import numpy as np
import pytest


def run(program):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)


def test_a_subinterpreter_is_refused():
    done = run("""
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        program = "import jitgemm"
        one = interpreters.create()
        try:
            print((getattr(interpreters, "exec", None) or interpreters.run_string)(one, program))
        except interpreters.RunFailedError as error:
            print(error)
        import jitgemm
        print(jitgemm.__version__)
    """)
    if "No module named '_xxsubinterpreters'" in done.stderr:
        pytest.skip("this Python has no subinterpreters")
    assert done.returncode == 0, done.stderr
    assert "subinterpreter" in done.stdout and jitgemm.__version__ in done.stdout, done.stdout


def test_names_without_torch():
    done = run("""
        import sys
        sys.modules["torch"] = None  # as if it was not installed
        import jitgemm
        from jitgemm import *
        assert bench and warm and cache and wisdom and epilogues and block_scales and BenchTable
        assert not hasattr(jitgemm, "torch") and "torch" not in dir(jitgemm)
        try:
            jitgemm.torch
        except AttributeError as error:
            assert "jitgemm.torch needs torch" in str(error)
        try:
            import jitgemm.torch
        except ImportError as error:
            assert "torch" in str(error)
        else:
            assert False
    """)
    assert done.returncode == 0, done.stderr


def test_dir_has_what_is_loaded_later():
    assert {"bench", "warm", "cache", "wisdom", "epilogues", "block_scales", "BenchTable", "matmul"} <= set(dir(jitgemm))
    assert ("torch" in dir(jitgemm)) == hasattr(jitgemm, "torch") == (importlib.util.find_spec("torch") is not None)


def test_paths_one_or_several(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    jitgemm.wisdom.export(one)
    for sources in (one, str(one), bytes(one), [one, str(one)]):
        assert len(jitgemm.wisdom.merge(two, sources).results) == len(jitgemm.wisdom.read(one).results)
        jitgemm.wisdom.import_(sources, cache_dir=tmp_path)
    (tmp_path / "cache").mkdir()
    assert jitgemm.cache.kernels(bytes(tmp_path / "cache")) == []
    for enough in (2**70, np.int64(10)):
        assert jitgemm.cache.prune(enough, tmp_path / "cache") == 0
    for wrong in (-1, 1.5, "1", np.array([1.5])):
        with pytest.raises(ValueError, match="max_bytes is .*; pass how many bytes may stay"):
            jitgemm.cache.prune(wrong, tmp_path / "cache")


def test_block_scales_of_no_arrays():
    x = np.ones((4, 128), np.float32)
    for scales, operand, name in (([[1.0]], x, "scales is a list"), (None, x, "scales is a NoneType"), (x, 3, "operand is a int")):
        with pytest.raises(TypeError, match=f"arrays of torch, NumPy and CuPy; {name}"):
            jitgemm.block_scales(scales, operand)


def test_bench_without_numpy():
    done = run("""
        import sys
        sys.modules["numpy"] = None  # as if it was not installed
        import jitgemm
        try:
            jitgemm.bench([(8, 8, 8)], dtype="f32", device="cpu")
        except ImportError as error:
            assert 'pip install "jitgemm[bench]"' in str(error)
        else:
            assert False
    """)
    assert done.returncode == 0, done.stderr
