"""Problems, plans, contexts, warm() and bench()."""
import ctypes
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import jitgemm
import numpy as np
import pytest
from jitgemm import epilogues


def test_problems_read_back_what_they_print():
    problem = jitgemm.Problem(64, 96, 128, a="bf16", layout_b="column_major", bias="along_n")
    assert jitgemm.Problem(str(problem)) == problem
    assert hash(jitgemm.Problem(str(problem))) == hash(problem)
    assert pickle.loads(pickle.dumps(problem)) == problem
    assert problem != "m=64" and problem != jitgemm.Problem(64, 96, 127)
    assert (problem.m, problem.n, problem.k, problem.batch) == (64, 96, 128, 1)
    for words in [("64x64",), (64, 64), (64.0, 64, 64), ("64x64x64", 3)]:
        with pytest.raises((ValueError, TypeError)):
            jitgemm.Problem(*words)
    assert jitgemm.Problem(np.int64(4), 4, 4, a=np.float32, activation="gelu", bias=None) == \
        jitgemm.Problem("4x4x4 a=f32 activation=gelu_erf")
    for words in (dict(alpha="2 k=7"), dict(bias="along_n m=99"), dict(alpha="")):
        with pytest.raises(ValueError, match="is not one word"):
            jitgemm.Problem(4, 4, 4, **words)
    with pytest.raises(TypeError, match="f99"):
        jitgemm.Problem(4, 4, 4, a="f99")


def test_plans_without_a_gpu():
    context = jitgemm.Context("compile_only", architecture="sm_90a")
    problem = jitgemm.Problem(4096, 4096, 4096, a="bf16")
    plan = context.plan(problem)
    assert plan.source == "model" and plan.predicted_us > 50 and plan.config.startswith("sm90")
    assert plan.json()["config"] == plan.config and plan.config in plan.explain()
    assert "wgmma" in context.source(problem)
    assert list(context.sources(problem)) == ["gemm"]
    assert len(context.candidates(problem)) > 1
    other = context.candidates(problem)[1].config
    assert context.plan(problem, other).source == "pinned"
    assert isinstance(context.workspace_size(problem, other), int)
    assert context.device.architecture == "sm_90a" and context.device.sm_count == 132
    with pytest.raises(RuntimeError, match="the device compile_only cannot use device memory"):
        jitgemm.matmul(np.eye(4, dtype="f4"), np.eye(4, dtype="f4"), context=context)


def test_explain_and_source_of_arrays_problems_and_texts():
    a = np.zeros((32, 64), np.float32)
    assert "32, 48, 64" in jitgemm.explain(a, np.zeros((64, 48), np.float32))
    assert "32, 48, 64" in jitgemm.explain("32x48x64 a=f32", context=jitgemm.Context("cpu"))
    context = jitgemm.Context("compile_only", architecture="sm_80")
    assert "A100" in jitgemm.explain(jitgemm.Problem(32, 48, 64), context=context)
    assert "__global__" in jitgemm.source("32x48x64", context=context)
    with pytest.raises(TypeError, match="b is missing"):
        jitgemm.explain(a)
    for name, value in (("alpha", 2.0), ("slope", 0.5), ("activation", "relu"), ("b", a), ("stream", 0)):
        with pytest.raises(TypeError, match=f"{name} is given beside a Problem"):
            jitgemm.explain(jitgemm.Problem(32, 48, 64), **{name: value}, context=context)


@pytest.mark.parametrize("words, error, message", [
    (dict(device="gpu"), ValueError, 'device is "gpu"; choose one of cuda, cuda:N, cpu, compile_only'),
    (dict(device="cuda:x"), ValueError, 'device is "cuda:x"'),
    (dict(device="cuda:-1"), ValueError, 'device is "cuda:-1"'),
    (dict(device="cpu", tuning="maybe"), ValueError, 'tuning is "maybe"; choose one of off, cached, on'),
    (dict(device="cpu", tuning=3), TypeError, "tuning is 3, which that option of Context does not take"),
    (dict(device="cpu", bucket_m="yes"), TypeError, "bucket_m is 'yes'"),
    (dict(device="cpu", cache_dir=3), TypeError, "expected str, bytes or os.PathLike"),
    (dict(device="cpu", sm_limit=-1), ValueError, "sms"),
    (dict(device="cpu", wrong=1), TypeError, "Context has no option wrong; it has architecture, tuning"),
    (dict(device="compile_only"), ValueError, "architecture"),
    (dict(device="compile_only", architecture="sm_1"), ValueError, "sm_1"),
    (dict(device="cpu", emulator_sm_count=0), ValueError, "emulator_sm_count"),
    (dict(device="cpu", workspace_limit=-1), TypeError, "workspace_limit is -1"),
])
def test_every_wrong_option_is_one_clear_error(words, error, message):
    with pytest.raises(error, match=message):
        jitgemm.Context(**words)


def test_a_fallback_is_asked(tmp_path):
    asked = []

    def fallback(problem, pointers, stream):
        asked.append((problem.m, sorted(name for name, pointer in pointers.items() if pointer), stream))
        return False

    context = jitgemm.Context("cpu", compile_in_background=True, fallback=fallback, tuning="off",
                              cache_dir=tmp_path / "one")
    a, b = np.ones((7, 11), np.float32), np.ones((11, 13), np.float32)
    assert (jitgemm.matmul(a, b, context=context) == 11).all()
    assert asked == [(7, ["a", "b", "d"], 0)]

    def broken(problem, pointers, stream):
        raise KeyError("mine")

    context = jitgemm.Context("cpu", compile_in_background=True, fallback=broken, tuning="off",
                              cache_dir=tmp_path / "two")
    with pytest.raises(KeyError, match="mine"):
        jitgemm.matmul(np.ones((9, 11), np.float32), b, context=context)


def test_a_fallback_gets_all_that_the_call_was_given(tmp_path):
    def served(call):
        """The problem, and what a fallback got that has zeroed D."""
        got = []

        def fallback(problem, pointers, stream):
            got.append((problem, pointers))
            ctypes.memset(pointers["d"], 0, 4 * problem.m * problem.n)
            return True

        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        call(jitgemm.Context("cpu", compile_in_background=True, fallback=fallback, tuning="off", cache_dir=folder))
        [(problem, pointers)] = got
        return str(problem), pointers

    a, b, out = (np.ones(shape, np.float32) for shape in ((7, 11), (11, 13), (7, 13)))
    residual, bias = np.ones((7, 20), np.float32)[:, :13], np.ones(13, np.float32)
    both = {"residual": residual, "bias": bias}
    add = epilogues.bias_residual("f32")
    problem, pointers = served(lambda context: jitgemm.matmul(a, b, out=out, epilogue=add, operands=both, context=context))
    assert f"epilogue={add.digest}" in problem and (out == 0).all()
    assert {name: pointer for name, pointer in pointers.items() if pointer is None} == dict.fromkeys(
        ("c", "bias", "scale_a", "scale_b", "scale_d", "scales_d", "group_rows"))
    assert (pointers["a"], pointers["b"], pointers["d"]) == tuple(x.ctypes.data for x in (a, b, out))
    assert set(pointers["epilogue"]) == {"residual", "bias"}
    assert pointers["epilogue"]["residual"] == (residual.ctypes.data, 20, 0)
    assert pointers["epilogue"]["bias"][0] == bias.ctypes.data
    limits = {"low": -1, "high": 2.5}
    _, pointers = served(lambda context: jitgemm.matmul(a, b, epilogue=epilogues.clamp(), operands=limits, context=context))
    assert pointers["epilogue"] == limits
    weights, offs, before = np.ones((2, 11, 13), np.float32), np.array([3, 7], np.int32), np.empty((7, 13), np.float32)
    problem, pointers = served(lambda context: jitgemm.grouped_mm(a, weights, offs, epilogue=epilogues.gelu("f32"),
                                                                  operands={"before": before}, context=context))
    assert "offsets" in problem and pointers["group_rows"] == offs.ctypes.data
    assert pointers["epilogue"] == {"before": (before.ctypes.data, 13, 0)}
    _, pointers = served(lambda context: jitgemm.grouped_mm(a, weights, offs, context=context))
    assert pointers["group_rows"] == offs.ctypes.data and pointers["epilogue"] is None


def test_a_fallback_says_true_or_false(tmp_path):
    context = jitgemm.Context("cpu", compile_in_background=True, fallback=lambda *_: 1, tuning="off", cache_dir=tmp_path)
    with pytest.raises(TypeError, match="fallback returned a builtins.int, which is no bool; return True where"):
        jitgemm.matmul(np.ones((7, 11), np.float32), np.ones((11, 13), np.float32), context=context)


def test_tune_reports_and_remembers():
    context = jitgemm.Context("cpu", tuning="cached")
    problem = jitgemm.Problem(16, 16, 32, a="f32")
    seen = []
    report = context.tune(problem, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == len(report.candidates)
    assert len(set(seen)) == len(seen)
    assert report.plan.measured_us > 0 and report.seconds > 0
    assert context.plan(problem).source in ("exact", "measured")
    assert context.counters.tuned >= 1

    def broken(done, total):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        context.tune(problem, progress=broken)
    with pytest.raises(TypeError, match="progress is neither True nor a function"):
        context.tune(problem, progress=3)
    context.tune(problem)  # it goes on


PROGRAM = """
    import os, signal, sys, threading, time
    import jitgemm, numpy
    context = jitgemm.Context("cpu", tuning="on", tuning_budget_seconds=600, cache_dir=sys.argv[2])
    def interrupt():
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    begin = time.time()
    a = numpy.ones((160, 160), numpy.float32)
    try:
        if sys.argv[1] == "tune":
            while True: context.tune(jitgemm.Problem(160, 160, 160, a="f32"))
        else:
            for n in range(8, 160):
                jitgemm.matmul(a, a[:, :n], context=context)
    except KeyboardInterrupt:
        print("interrupted", time.time() - begin < 30)
    assert (jitgemm.matmul(a[:8, :8], a[:8, :8], context=jitgemm.Context("cpu", tuning="off")) == 8).all()
"""


@pytest.mark.parametrize("way", ["tune", "matmul"])
def test_ctrl_c_ends_tuning(way, tmp_path):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM), way, tmp_path / "cache"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "interrupted True\n"


@pytest.mark.parametrize("work", ["jitgemm.matmul(a, a)", "product()", "jitgemm.explain(a, a)",
                                  "context.tune(problem, progress=lambda *_: None)", "refused()"])
def test_the_program_ends_while_daemon_threads_work(work):
    program = f"""
        import contextlib, threading, time, jitgemm, numpy
        a = numpy.ones((8, 8), "f4")
        product, context, problem = jitgemm.Matmul(a, a), jitgemm.Context("cpu"), jitgemm.Problem(8, 8, 8, a="f32")
        jitgemm.matmul(a, a)
        def refused():
            with contextlib.suppress(ValueError): jitgemm.matmul(a, a[:7])
        def loop():
            while True: {work}
        for _ in range(4): threading.Thread(target=loop, daemon=True).start()
        time.sleep(0.5)
        """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], capture_output=True,
                          text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_other_threads_run_while_one_tunes():
    context = jitgemm.Context("cpu")
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.005)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        begin = time.monotonic()
        context.tune(jitgemm.Problem(24, 16, 32, a="f32"))
        end = time.monotonic()
    finally:
        stop.set()
        thread.join()
    inside = [at for at in ticks if begin < at < end]
    assert len(inside) > 0.1 * (end - begin) / 0.005


def test_warm_compiles_what_matmul_runs(tmp_path):
    assert jitgemm.warm([(32, 32, 32), "16x16x16 a=f16", jitgemm.Problem(8, 8, 8, a="f32")], dtype="f32",
                        cache_dir=str(tmp_path / "cache"), device="cpu") == 3
    context = jitgemm.Context("cpu", cache_dir=str(tmp_path / "cache"), tuning="off")
    jitgemm.matmul(np.eye(32, dtype="f4"), np.eye(32, dtype="f4"), context=context)
    assert context.counters.compiles == 0
    shapes = tmp_path / "shapes.txt"
    shapes.write_text("# m n k\n8 8 8\n\n16 8 8\n")
    seen = []
    assert jitgemm.warm(shapes, dtype="f32", cache_dir=str(tmp_path / "cache"), device="cpu", progress=lambda *at: seen.append(at)) == 2
    assert seen == [(1, 2), (2, 2)]
    shapes.write_text("8 8\n")
    with pytest.raises(ValueError, match="shapes.txt:1: .* write three integers a line"):
        jitgemm.warm(shapes)
    with pytest.raises(ValueError, match="layout is 'xy'"):
        jitgemm.warm([(8, 8, 8)], layout="xy")


def test_bench_makes_a_table(tmp_path):
    table = jitgemm.bench([(16, 16, 16), (8, 24, 32)], device="cpu", tune=False, seconds=0.01)
    assert [(row.m, row.n, row.k) for row in table] == [(16, 16, 16), (8, 24, 32)]
    assert all(row.error < 1e-6 and row.ours_us > 0 and row.peer_us > 0 for row in table)
    assert "geometric mean of 2" in str(table) and "<table>" in table._repr_html_()
    table.to_csv(tmp_path / "rows.csv")
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 3
    with pytest.raises(ValueError, match="bfloat16 needs a GPU"):
        jitgemm.bench([(16, 16, 16)], dtype="bf16", device="cpu")


def test_signals_are_left_alone():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_paths_may_be_bytes(tmp_path):
    jitgemm.warm(["8x8x8 a=f32"], device="cpu", cache_dir=tmp_path / "one")
    context = jitgemm.Context("cpu", cache_dir=bytes(tmp_path / "one"), tuning="off")
    jitgemm.matmul(np.eye(8, dtype="f4"), np.eye(8, dtype="f4"), context=context)
    assert context.counters.launches == 1 and not (tmp_path / "b'").exists()


@pytest.mark.skipif(bool(jitgemm.devices()), reason="there is a CUDA device")
def test_the_default_context_without_a_gpu():
    with pytest.raises(RuntimeError) as error:
        jitgemm.default_context()
    assert error.value.code == "no_device"
    jitgemm.default_context("cpu").check()  # what help() says to use
    for function in (jitgemm.default_context, jitgemm.Context.check):
        assert "no CUDA driver" in function.__doc__ and 'default_context("cpu")' in function.__doc__


def test_another_default_context():
    program = """
        import jitgemm, numpy, pytest
        mine = jitgemm.Context("cpu", tuning="off")
        jitgemm.set_default_context(mine)
        assert jitgemm.default_context("cpu") is mine
        a = numpy.ones((4, 4), "f4")
        assert (jitgemm.matmul(a, a) == 4).all() and mine.counters.launches == 1
        with pytest.raises(ValueError, match="compile_only serves no arrays"):
            jitgemm.set_default_context(jitgemm.Context("compile_only", architecture="sm_80"))
        with pytest.raises(TypeError, match="context is no jitgemm.Context"):
            jitgemm.set_default_context(3)
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)


def test_a_call_keeps_the_configuration_that_it_began_with(tmp_path):
    whole, split = ("sm80 64x64x32 stages=3 schedule=" + schedule for schedule in ("data_parallel", "split_k splits=2"))
    context = jitgemm.Context("cpu", tuning="off", cache_dir=tmp_path)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape, np.float32) for shape in ((2, 1, 16, 256), (3, 256, 16)))  # two GEMMs
    expected, other = (jitgemm.matmul(a, b, config=config) for config in (whole, split))
    assert not (expected[1] == other[1]).all()
    product, results = jitgemm.Matmul(a, b, config=whole, context=context), []
    begun = threading.Event()
    caller = threading.Thread(target=lambda: (begun.set(), results.append(product())))
    caller.start()
    begun.wait()
    time.sleep(0.1)  # it compiles meanwhile
    product.plan(split)
    caller.join()
    assert (results[0] == expected).all() and (product() == other).all()
