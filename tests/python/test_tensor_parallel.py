"""TensorParallel: ranks are threads of this process, their NCCL is fake_nccl.cpp and their device the emulator.

Needs the NCCL that CMake's target fake_nccl makes: tools/wheel.sh and ctest name it in JITGEMM_FAKE_NCCL.
"""
import contextlib
import ctypes
import gc
import importlib.util
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time
import types
import weakref
from collections.abc import Callable

import numpy as np
import pytest

try:
    import torch
except ImportError:
    torch = None

FAKE = os.environ.get("JITGEMM_FAKE_NCCL")
if not FAKE:
    pytest.skip("JITGEMM_FAKE_NCCL names no NCCL between threads, as tools/wheel.sh and ctest do", allow_module_level=True)
# Found by its name, as torch's is, or before that one.
fake = ctypes.CDLL(FAKE, ctypes.RTLD_GLOBAL if torch and torch.distributed.is_nccl_available() else ctypes.DEFAULT_MODE)
for function in (fake.fake_make, fake.fake_communicator):
    function.restype = ctypes.c_void_p
fake.fake_calls.restype = ctypes.c_char_p
for function in (fake.fake_communicator, fake.fake_fail, fake.fake_set_async_error, fake.fake_give_up,
                 fake.fake_destroy, fake.fake_set_device, fake.fake_calls):
    function.argtypes = (ctypes.c_void_p, *[ctypes.c_int] * 3)[:{"fake_fail": 4, "fake_set_async_error": 3, "fake_give_up": 1,
                                                                 "fake_destroy": 1}.get(function.__name__, 2)]

import jitgemm  # noqa: E402

METHODS = ["all_gather_matmul", "matmul_reduce_scatter", "matmul_all_reduce"]
SYSTEM_ERROR, REMOTE_ERROR = 2, 6  # ncclResult_t
rng = np.random.default_rng(1)


def on_each_rank(ranks: int, work: Callable[[int], object]) -> list:
    """What work(rank) gives on a thread each. What one raises comes out, in the order of ranks."""
    results, raised = [None] * ranks, [None] * ranks

    def run(rank: int) -> None:
        try:
            results[rank] = work(rank)
        except BaseException as error:
            raised[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in raised:
        if error:
            raise error
    return results


class World:
    """Communicators of one process."""

    def __init__(self, ranks: int, **options: object) -> None:
        self.ranks, self.options = ranks, {"timeout_seconds": 60.0} | options
        self.handle = fake.fake_make(ranks)

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        fake.fake_give_up(self.handle)
        fake.fake_destroy(self.handle)

    def communicator(self, rank: int) -> int:
        return fake.fake_communicator(self.handle, rank)

    def member(self, rank: int, **options: object) -> jitgemm.TensorParallel:
        return jitgemm.TensorParallel(self.communicator(rank), **self.options | options)

    def each(self, work: Callable[[jitgemm.TensorParallel, int], object]) -> list:
        """work(parallel, rank) on each rank, with one of its own."""

        def with_member(rank: int) -> object:
            with self.member(rank) as parallel:
                return work(parallel, rank)

        return on_each_rank(self.ranks, with_member)

    def calls(self, rank: int) -> list[str]:
        return fake.fake_calls(self.handle, rank).decode().splitlines()


def exact(x) -> np.ndarray:
    return np.asarray(x).astype(np.float64)


class Case:
    """What each rank has of one product, and what it gets; `whole` is the product of all."""

    def __init__(self, method: str, ranks: int, rows: int = 6, n: int = 24, k: int = 16, dtype: object = "float32") -> None:
        self.method, self.ranks = method, ranks
        m = rows if method == "matmul_all_reduce" else rows * ranks
        gathers = method == "all_gather_matmul"

        def drawn(*shape: int) -> np.ndarray:
            return rng.integers(-3, 4, shape).astype(dtype)

        self.a = drawn(m, k if gathers else k * ranks)
        self.b = [drawn(k, n) for _ in range(ranks)] if gathers else drawn(k * ranks, n)
        self.rows, self.k, self.m, self.n = rows, k, m, n

    def of(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        if self.method == "all_gather_matmul":
            return self.a[rank * self.rows:(rank + 1) * self.rows].copy(), self.b[rank]
        own = slice(rank * self.k, (rank + 1) * self.k)
        return self.a[:, own].copy(), self.b[own]

    def part(self, whole: np.ndarray, rank: int) -> np.ndarray:
        """Of what has a row for each of the result's, those that the rank gets."""
        return whole[rank * self.rows:(rank + 1) * self.rows] if self.method == "matmul_reduce_scatter" else whole

    def whole(self, rank: int) -> np.ndarray:
        return exact(self.a) @ exact(self.b[rank] if self.method == "all_gather_matmul" else self.b)

    def expected(self, rank: int) -> np.ndarray:
        return self.part(self.whole(rank), rank)

    def run(self, world: World, **keywords: object) -> list[np.ndarray]:
        return world.each(lambda parallel, rank: getattr(parallel, self.method)(*self.of(rank), **keywords))

    def check(self, world: World, **keywords: object) -> None:
        for rank, d in enumerate(self.run(world, **keywords)):
            assert d.shape == self.expected(rank).shape and (exact(d) == self.expected(rank)).all()


# ------------------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("method", METHODS)
def test_what_one_product_of_all_would_be(method, ranks):
    with World(ranks) as world:
        Case(method, ranks).check(world)
        Case(method, ranks, rows=1, n=17, k=13).check(world)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_added_and_applied_comes_once(method):
    case = Case(method, 2)
    c, bias = rng.integers(-9, 9, (case.m, case.n)).astype("f4"), rng.integers(-9, 9, case.n).astype("f4")
    by_row = rng.integers(-9, 9, (case.m, 1)).astype("f4")
    outs = [np.full_like(case.part(c, rank), np.nan) for rank in range(2)]

    def work(parallel, rank):
        a, b = case.of(rank)
        own = {"c": case.part(c, rank).copy(), "alpha": 0.5, "beta": -2.0}
        multiply = getattr(parallel, method)
        assert multiply(a, b, **own, bias=bias, activation="relu", out=outs[rank]) is outs[rank]
        return multiply(a, b, bias=case.part(by_row, rank).copy(), scale_a=2.0), multiply(a, b, c=own["c"], out=own["c"])

    with World(2) as world:
        results = world.each(work)
    for rank, (with_row, added) in enumerate(results):
        total = 0.5 * case.whole(rank) - 2 * c + bias
        assert (outs[rank] == case.part(np.maximum(total, 0), rank)).all()
        assert (with_row == case.part(2 * case.whole(rank) + by_row, rank)).all()
        assert (added == case.part(case.whole(rank) + c, rank)).all()


@pytest.mark.parametrize("method", METHODS)
def test_types(method):
    with World(2) as world:
        for dtype, result in (("float16", "float16"), ("float64", "float64"), ("int8", "int32")):
            assert Case(method, 2, dtype=dtype).run(world)[0].dtype == result
            Case(method, 2, dtype=dtype).check(world)
        Case(method, 2, dtype="float16").check(world, out_dtype="f32")
        ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 and 8-bit floats of NumPy come with ml_dtypes")
        Case(method, 2, dtype=ml_dtypes.bfloat16).check(world)
        case = Case(method, 2, dtype=ml_dtypes.float8_e4m3fn)
        half, quarter = np.full(1, 0.5, "f4"), np.full(1, 0.25, "f4")
        for rank, d in enumerate(case.run(world, scale_a=half, scale_b=quarter, scale_d=half, out_dtype="float8_e4m3fn")):
            assert np.allclose(exact(d), case.expected(rank) / 16, rtol=0.07, atol=0.02)


@pytest.mark.parametrize("method", METHODS)
def test_arrays_are_read_and_written_where_they_lie(method):
    case = Case(method, 2, n=20, k=24)
    within = [np.full((case.m, 32), np.nan, "f4") for _ in range(2)]

    def work(parallel, rank):
        a, b = case.of(rank)
        multiply = getattr(parallel, method)
        wide = np.full((a.shape[0], 40), np.nan, "f4")
        wide[:, 4:28] = a
        out = within[rank][:case.expected(rank).shape[0], 4:24]
        assert multiply(wide[:, 4:28], b.T.copy().T, out=out) is out
        apart = np.full((a.shape[0], 2 * a.shape[1]), np.nan, "f4")
        apart[:, ::2] = a
        return multiply(apart[:, ::2], b), multiply(np.asfortranarray(a), b), multiply(apart[:, :1], b[:1])

    with World(2) as world:
        results = world.each(work)
    for rank, (d, by_columns, outer) in enumerate(results):
        expected = case.expected(rank)
        first = [exact(case.of(of)[0][:, :1]) @ exact(case.of(of)[1][:1]) for of in range(2)]
        if method == "all_gather_matmul":
            assert (outer == exact(case.a[:, :1]) @ exact(case.b[rank][:1])).all()
        else:
            assert (outer == case.part(sum(first), rank)).all()
        assert (d == expected).all() and (by_columns == expected).all() and (within[rank][:len(expected), 4:24] == expected).all()
        within[rank][:len(expected), 4:24] = np.nan
        assert np.isnan(within[rank]).all()


def test_the_stride_of_one_row_says_nothing():
    case = Case("all_gather_matmul", 2, rows=1)

    def work(parallel, rank):
        a, b = case.of(rank)
        return parallel.all_gather_matmul(np.lib.stride_tricks.as_strided(a, strides=(4, 4)), b)

    with World(2) as world:
        for rank, d in enumerate(world.each(work)):
            assert (d == case.expected(rank)).all()


@pytest.mark.parametrize("sequence", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_sequences_are_shared_along_their_first_dimension(method, sequence):
    """As Megatron has activations, (sequence, batch, hidden)."""
    batch = 3
    case = Case(method, 2, rows=sequence * batch)
    c = rng.integers(-9, 9, (case.m // batch, batch, case.n)).astype("f4")

    def work(parallel, rank):
        a, b = case.of(rank)
        own = c[rank * sequence:(rank + 1) * sequence] if method == "matmul_reduce_scatter" else c
        return getattr(parallel, method)(a.reshape(-1, batch, case.k), b, c=own.copy())

    with World(2) as world:
        results = world.each(work)
    for rank, d in enumerate(results):
        expected = case.part(case.whole(rank) + c.reshape(case.m, case.n), rank)
        assert d.shape == (len(expected) // batch, batch, case.n) and (d == expected.reshape(d.shape)).all()


@pytest.mark.parametrize("method", METHODS)
def test_nothing_to_multiply(method):
    with World(2) as world:
        Case(method, 2, rows=0).check(world)
        Case(method, 2, n=0).check(world)
        for rank, d in enumerate(Case(method, 2, k=0).run(world, bias=np.arange(24, dtype="f4"))):
            assert (d == np.arange(24)).all()


@pytest.mark.parametrize("method", METHODS[:2])
def test_communication_under_the_product(method):
    with World(2) as world, World(2, overlap="none") as apart:
        case = Case(method, 2, rows=512, n=16, k=16, dtype="float16")
        case.check(world)
        case.check(apart)
        plan = world.each(lambda parallel, rank: (parallel.prepare(method, *case.of(rank)),
                                                  parallel.plan(method, *case.of(rank)))[1])[1]
        assert plan.overlapped and plan.staging_bytes > 0 and "faster" in plan.why
        assert repr(plan) == f"<jitgemm.ParallelPlan of {method}, rank 1 of 2, overlapped>"
        plan = apart.each(lambda parallel, rank: parallel.plan(method, *case.of(rank)))[0]
        assert not plan.overlapped and "Overlap::none" in plan.why


def test_small_sums_in_one_shot():
    method, case = "matmul_all_reduce", Case("matmul_all_reduce", 2, dtype="float16")
    with World(2) as world, World(2, overlap="none") as apart:
        case.check(world)
        case.check(apart)
        plan = world.each(lambda parallel, rank: parallel.plan(method, *case.of(rank)))[1]
        assert plan.one_shot and not plan.overlapped and plan.staging_bytes > 0 and "in one shot" in plan.why
        assert repr(plan) == f"<jitgemm.ParallelPlan of {method}, rank 1 of 2, in one shot>"
        plan = apart.each(lambda parallel, rank: parallel.plan(method, *case.of(rank)))[0]
        assert not plan.one_shot and "Overlap::none" in plan.why


@pytest.mark.skipif(not torch, reason="torch is not installed")
@pytest.mark.parametrize("method", METHODS)
def test_tensors(method):
    case = Case(method, 2)

    def work(parallel, rank):
        a, b = map(torch.from_numpy, case.of(rank))
        weight, multiply = torch.nn.Parameter(b.t().contiguous()), getattr(parallel, method)
        with pytest.raises(RuntimeError, match="b requires a gradient, and a product across ranks has none; use torch.no_gr"):
            multiply(a, weight.t())
        with pytest.raises(RuntimeError, match="a product across ranks is computed past torch's operators"):
            torch.func.vmap(lambda b: multiply(a, b))(b[None])
        with torch.no_grad():
            d = multiply(a, weight.t())
            out = torch.empty_like(d)
            version = out._version
            assert multiply(a, weight.t(), out=out) is out and out._version > version and torch.equal(out, d)
            with torch.autocast("cpu", torch.bfloat16):
                parallel.prepare(method, a, weight.t())
                before = len(world.calls(rank))
                assert multiply(a, weight.t()).dtype == torch.bfloat16
                assert len(world.calls(rank)) == before + (method != "matmul_all_reduce")  # that goes in one shot
            return d

    with World(2) as world:
        for rank, d in enumerate(world.each(work)):
            assert d.dtype == torch.float32 and (d.double().numpy() == case.expected(rank)).all()


@pytest.mark.skipif(not torch, reason="torch is not installed")
def test_the_example_s_layer(monkeypatch):
    path = pathlib.Path(__file__).parents[2] / "tools/python/examples/tensor_parallel.py"
    monkeypatch.syspath_prepend(str(path.parent))  # as it is where the script is started
    spec = importlib.util.spec_from_file_location("example", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    x = [torch.randn(8, 64).bfloat16() for _ in range(2)]

    def work(parallel, rank):
        weights = example.Weights(64, 96, rank, 2, "cpu")
        with torch.no_grad():
            return example.ours(parallel, weights)(x[rank]), weights.exact(x[rank])

    with World(2) as world:
        for d, exact_d in world.each(work):
            assert d.shape == exact_d.shape and torch.allclose(d.float(), exact_d, rtol=2e-2, atol=2e-2)


# -------------------------------------------------------------------------------------------- what runs, and why


def test_prepared_products_make_no_ado():
    case = Case("matmul_reduce_scatter", 2)
    problem = jitgemm.Problem(case.m, case.n, case.k, a="f32", bias="along_n")

    def work(parallel, rank):
        parallel.prepare("matmul_reduce_scatter", problem)
        parallel.prepare("matmul_reduce_scatter", *case.of(rank), bias=np.zeros(case.n, "f4"))
        parallel.check()
        before = len(world.calls(rank))
        parallel.matmul_reduce_scatter(*case.of(rank), bias=np.zeros(case.n, "f4"))
        return world.calls(rank)[before:]

    with World(2) as world:
        assert world.each(work) == [[f"ncclReduceScatter {case.rows * case.n}"]] * 2


def test_plan_says_what_would_be_done():
    case = Case("all_gather_matmul", 2, dtype="float16")
    with World(2) as world:
        plan, same = world.each(lambda parallel, rank: (
            parallel.plan("all_gather_matmul", *case.of(rank)),
            parallel.plan("all_gather_matmul", f"m={case.m} n={case.n} k={case.k} a=f16")))[1]
    assert (plan.rank, plan.ranks, plan.exchange, plan.overlapped) == (1, 2, "all_gather_matmul", False)
    assert plan.received_bytes == case.rows * case.k * 2 and plan.staging_bytes == case.m * case.k * 2
    assert plan.gemm.problem.m == case.m and plan.gemm.config
    assert plan.gemm_us > 0 and plan.exchange_us > 0 and plan.exposed_us == plan.exchange_us
    assert plan.measured_us == 0
    assert plan.why and plan.why in plan.explain() and plan.gemm.explain() in plan.explain()
    assert same.gemm.config == plan.gemm.config and same.received_bytes == plan.received_bytes


def test_as_an_object():
    with World(2) as world:
        first, second = on_each_rank(2, world.member)
        assert (first.rank, second.rank, first.ranks, second.closed) == (0, 1, 2, False)
        assert repr(first) == "<jitgemm.TensorParallel, rank 0 of 2>"
        first.close()
        first.close()
        assert first.closed and first.ranks == 2 and repr(first) == "<jitgemm.TensorParallel, rank 0 of 2, closed>"
        first.abort()
        a = np.ones((4, 8), "f4")
        for call in (lambda: first.matmul_all_reduce(a, a.T), first.check, lambda: first.plan("matmul_all_reduce", a, a.T),
                     lambda: first.prepare("matmul_all_reduce", a, a.T)):
            with pytest.raises(RuntimeError, match="this TensorParallel is closed; make another one"):
                call()


def test_two_of_one_communicator_and_of_two():
    case, other = Case("matmul_all_reduce", 2), Case("matmul_all_reduce", 2, n=8)
    with World(2) as world, World(2) as second:
        def work(rank):
            with world.member(rank) as x, world.member(rank) as y, second.member(1 - rank) as z:
                return (x.matmul_all_reduce(*case.of(rank)), y.matmul_all_reduce(*other.of(rank)),
                        z.matmul_all_reduce(*case.of(rank)))

        for rank, (x, y, z) in enumerate(on_each_rank(2, work)):
            assert (x == case.expected(rank)).all() and (y == other.expected(rank)).all() and (z == x).all()


def test_many_calls_of_many_threads():
    """Others make, use and drop objects meanwhile."""
    case = Case("all_gather_matmul", 2)
    stop = threading.Event()

    def others() -> None:
        while not stop.is_set():
            with World(1) as alone:
                member = alone.member(0)
                assert (member.matmul_all_reduce(case.a, case.b[0]) == case.whole(0)).all()
                del member
                gc.collect()

    with World(2) as world:
        noise = threading.Thread(target=others)
        noise.start()
        try:
            for results in world.each(lambda parallel, rank: [parallel.all_gather_matmul(*case.of(rank)) for _ in range(50)]):
                assert len(results) == 50
                for d in results:
                    assert (d == case.whole(0)).all() or (d == case.whole(1)).all()
        finally:
            stop.set()
            noise.join()


def test_it_goes_when_nobody_holds_it():
    with World(1) as world:
        member = world.member(0)
        gone = weakref.ref(member)
        del member
        assert gone() is None


# ------------------------------------------------------------------------------------------------- what goes wrong


def code_of(error: BaseException) -> str:
    return getattr(error, "code", "")


@pytest.mark.parametrize("communicator, kind, message", [
    (0, RuntimeError, "the communicator is null"),
    (1, ValueError, "communicator is 1, which is no address"),
    (-100, ValueError, "communicator is -100, which is no address; pass an ncclComm_t, or a process group that this rank"),
    (1 << 70, ValueError, "which is no address"),
    (True, TypeError, "communicator is a bool; pass a process group"),
    (None, TypeError, "communicator is None; pass a process group that torch.distributed.init_process_group()"),
    ("nccl", TypeError, "communicator is a str; pass a process group"),
    (1.5, TypeError, "communicator is a float; pass a process group"),
    (np.ones(1), TypeError, "communicator is a ndarray; pass a process group"),
    (types.SimpleNamespace(get_group=None), TypeError, "is a mesh of devices; pass one of its process groups"),
])
def test_what_is_no_communicator(communicator, kind, message):
    with pytest.raises(kind) as raised:
        jitgemm.TensorParallel(communicator)
    assert message in str(raised.value)


def test_a_communicator_that_is_gone():
    with World(1) as world:
        gone = world.communicator(0)
    with pytest.raises(RuntimeError, match="ncclCommUserRank says invalid argument") as raised:
        jitgemm.TensorParallel(gone)
    assert code_of(raised.value) == "communicator_failed"


@pytest.mark.parametrize("options, kind, message", [
    ({"overlap": "always"}, ValueError, 'overlap is \'always\'; choose one of "automatic", "none"'),
    ({"overlap": True}, TypeError, "overlap is True; choose one of"),
    ({"staging_bytes": -1}, TypeError, "staging_bytes is no number of bytes"),
    ({"staging_bytes": 1.5}, TypeError, "staging_bytes is no number of bytes"),
    ({"timeout_seconds": -1}, ValueError, "timeout_seconds=-1 is no time; give 0 to wait for ever"),
    ({"timeout_seconds": float("nan")}, ValueError, "is no time"),
    ({"timeout_seconds": None}, TypeError, "timeout_seconds is no number"),
    ({"context": "cpu"}, TypeError, "context is no jitgemm.Context"),
    ({"context": jitgemm.Context("compile_only", architecture="sm_90a")}, ValueError, "compile_only multiplies nothing"),
])
def test_what_are_no_options(options, kind, message):
    with World(1) as world, pytest.raises(kind) as raised:
        world.member(0, **options)
    assert message in str(raised.value)


def test_a_communicator_of_another_device():
    with World(1) as world:
        fake.fake_set_device(world.handle, 1)
        with pytest.raises(RuntimeError, match="the communicator is of device 1 and the Context of device 0") as raised:
            world.member(0, context=jitgemm.default_context("cpu"))
        assert code_of(raised.value) == "communicator_failed"


def ones(*shape: int, dtype: str = "f4") -> np.ndarray:
    return np.ones(shape, dtype)


@pytest.mark.parametrize("method, arguments, kind, message", [
    ("all_gather_matmul", (ones(4, 8), ones(4, 8)), ValueError, "the last dimension of a, 8, is not the last but one of b, 4"),
    ("all_gather_matmul", (ones(8), ones(8, 4)), ValueError, "a is (8,); pass one of shape (rows, K)"),
    ("all_gather_matmul", (ones(4, 8), ones(2, 8, 4)), ValueError, "products across ranks take one matrix (K, N)"),
    ("all_gather_matmul", (ones(4, 8), ones(8)), ValueError, "b is (8,); products across ranks take one matrix"),
    ("all_gather_matmul", (ones(4, 8), ones(8, 4), {"out": ones(4, 4)}), ValueError, "out is (4, 4), and the result (8, 4)"),
    ("all_gather_matmul", (ones(4, 8), ones(8, 4), {"c": ones(4, 4)}), ValueError, "c is (4, 4) and the result (8, 4): they"),
    ("all_gather_matmul", (ones(4, 8), ones(8, 4), {"bias": ones(4, 1)}), ValueError, "or (8, 1) for one value a row"),
    ("all_gather_matmul", (ones(4, 8), ones(8, 4), {"out": ones(4, 8).T}), ValueError, "ranks exchange rows"),
    ("matmul_reduce_scatter", (ones(5, 8), ones(8, 4)), ValueError, "whose 5 rows are not divided by 2 ranks; pad them"),
    ("matmul_reduce_scatter", (ones(4, 8), ones(8, 4), {"out": ones(4, 4)}), ValueError, "out is (4, 4), and the result (2, 4)"),
    ("matmul_reduce_scatter", (ones(4, 8), ones(8, 4), {"c": ones(4, 4)}), ValueError, "of the rows that this rank gets"),
    ("matmul_reduce_scatter", (ones(4, 8), ones(8, 4), {"bias": ones(4, 1)}), ValueError, "pass one of shape (4,), or"),
    ("matmul_all_reduce", (ones(4, 8), ones(8, 4), {"out": ones(4, 4).T}), ValueError, "ranks exchange rows"),
    ("matmul_all_reduce", (ones(2, 4, 16)[:, :, :8], ones(8, 4), {"out": ones(2, 5, 4)[:, :4]}), ValueError,
     "do not follow each other at one stride"),
    ("matmul_all_reduce", (ones(4, 12)[:, 1:9], ones(8, 4)), ValueError, "a begins at no multiple of 16 bytes, by which all"),
    ("matmul_all_reduce", (ones(4, 8), ones(8, 4), {"beta": 1.0}), ValueError, "beta multiplies c, which is not there"),
    ("matmul_all_reduce", (ones(4, 8), ones(8, 4), {"activation": "tanh"}), ValueError, "choose one of None, relu"),
    ("matmul_all_reduce", (ones(4, 8), ones(8, 4), {"bias": ones(4, dtype="f8")}), TypeError, "bias is of f64, and goes with"),
    ("matmul_all_reduce", (ones(4, 8), "b"), TypeError, "b is a builtins.str, which does not speak DLPack"),
    ("matmul_all_reduce", (None, ones(8, 4)), TypeError, "does not speak DLPack"),
    ("matmul_all_reduce", (ones(4, 8), ones(8, 4), {"config": "x"}), TypeError, "incompatible function arguments"),
])
def test_what_a_rank_is_refused_alone(method, arguments, kind, message):
    """Before other ranks wait for it."""
    *arrays, keywords = arguments if isinstance(arguments[-1], dict) else (*arguments, {})
    with World(2) as world:
        first, _ = on_each_rank(2, lambda rank: world.member(rank, timeout_seconds=5))
        before = len(world.calls(0))
        with pytest.raises(kind) as raised:
            getattr(first, method)(*arrays, **keywords)
        assert message in str(raised.value)
        assert len(world.calls(0)) == before


def test_exchanges_have_names():
    with World(1) as world:
        member = world.member(0)
        for exchange, kind in (("all_gather", ValueError), (None, TypeError), (0, TypeError)):
            with pytest.raises(kind, match="choose one of all_gather_matmul, matmul_reduce_scatter, matmul_all_reduce"):
                member.plan(exchange, "m=8 n=8 k=8")
        with pytest.raises(TypeError, match="b is missing; pass this rank's two arrays, or a Problem"):
            member.prepare("matmul_all_reduce", ones(4, 8))


def test_what_the_library_refuses_all_ranks_hear():
    """Also those that ask for nothing wrong."""
    def work(parallel, rank):
        scales = np.ones(4, "f4")
        with pytest.raises(ValueError) as raised:
            if rank == 0:
                parallel.matmul_all_reduce(ones(4, 8, dtype="i1"), ones(8, 4, dtype="i1"), scale_a=scales, out_dtype="f32")
            else:
                parallel.matmul_all_reduce(ones(4, 8), ones(8, 4))
        return str(raised.value)

    with World(2) as world:
        refused, told = world.each(work)
    assert "matmul" not in refused and "takes no vectors of scales; give single values" in refused
    assert "rank 0 of 2 could not go on, and so no rank does" in told


def test_ranks_that_ask_for_different_products():
    case = Case("matmul_all_reduce", 2)

    def work(parallel, rank):
        with pytest.raises(ValueError, match="the ranks do not ask for the same: .* by rank 1") as raised:
            parallel.matmul_all_reduce(ones(4, 8), ones(8, 4 + rank))
        return code_of(raised.value), parallel.matmul_all_reduce(*case.of(rank))  # and go on

    with World(2) as world:
        for rank, (code, d) in enumerate(world.each(work)):
            assert code == "invalid_problem" and (d == case.expected(rank)).all()


@pytest.mark.parametrize("prepared", [False, True])
def test_a_rank_that_never_comes(prepared):
    case = Case("matmul_all_reduce", 2)
    with World(2, timeout_seconds=0.5 if not prepared else 2) as world:
        def make(rank):
            parallel = world.member(rank, overlap="none")
            if prepared:
                parallel.prepare(case.method, *case.of(rank))
            return parallel

        first, _ = on_each_rank(2, make)
        for call in (lambda: first.matmul_all_reduce(*case.of(0)), first.check, lambda: first.matmul_all_reduce(*case.of(0))):
            with pytest.raises(RuntimeError, match=r"rank 0: rank 1 did not answer in [\d.]+ s") as raised:
                call()
            assert code_of(raised.value) == "peer_lost"


def test_a_kernel_waits_for_a_rank_in_vain():
    case = Case("matmul_all_reduce", 2)
    with World(2, timeout_seconds=1) as world:
        def make(rank):
            parallel = world.member(rank)
            parallel.prepare(case.method, *case.of(rank))
            assert parallel.plan(case.method, *case.of(rank)).one_shot
            return parallel

        first, _ = on_each_rank(2, make)
        first.matmul_all_reduce(*case.of(0))  # what a kernel waits for, later calls say
        for call in (first.check, lambda: first.matmul_all_reduce(*case.of(0))):
            with pytest.raises(RuntimeError, match="rank 0 has waited in vain for rank 1") as raised:
                call()
            assert code_of(raised.value) == "peer_lost"


def test_python_runs_while_a_rank_waits():
    with World(2, timeout_seconds=1) as world:
        first, _ = on_each_rank(2, world.member)
        ended = threading.Event()

        def wait():
            with contextlib.suppress(RuntimeError):
                first.matmul_all_reduce(ones(4, 8), ones(8, 4))
            ended.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        turns = 0
        while not ended.is_set():
            time.sleep(0.01)
            turns += 1
        waiting.join()
        assert turns > 20


def test_abort_ends_a_wait():
    with World(2, timeout_seconds=0) as world:
        first, _ = on_each_rank(2, world.member)
        timer = threading.Timer(0.3, first.abort)
        timer.start()
        for call in (lambda: first.matmul_all_reduce(ones(4, 8), ones(8, 4)), first.check):
            with pytest.raises(RuntimeError, match=r"rank 0: abort\(\) was called") as raised:
                call()
            assert code_of(raised.value) == "communicator_failed"


def test_close_leaves_a_call_its_own():
    case = Case("matmul_all_reduce", 2)
    with World(2) as world:
        first, second = on_each_rank(2, world.member)
        results = []
        waiting = threading.Thread(target=lambda: results.append(first.matmul_all_reduce(*case.of(0))))
        waiting.start()
        time.sleep(0.2)
        first.close()
        del first
        results.append(second.matmul_all_reduce(*case.of(1)))
        waiting.join()
        assert len(results) == 2 and all((d == case.expected(0)).all() for d in results)


def test_an_exception_of_one_rank_is_its_own():
    """The others hear of it when they have waited."""
    case = Case("matmul_all_reduce", 2)
    raised = {}

    def work(parallel, rank):
        try:
            if rank == 1:
                raise KeyError("the model's own")
            parallel.matmul_all_reduce(*case.of(rank))
        except (KeyError, RuntimeError) as error:
            raised[rank] = error
            raise

    with World(2, timeout_seconds=0.5) as world:
        with pytest.raises(RuntimeError):
            world.each(work)
    assert isinstance(raised[1], KeyError) and code_of(raised[0]) == "peer_lost"


def test_nccl_that_fails():
    case = Case("matmul_all_reduce", 2)
    with World(2) as world:
        first, second = on_each_rank(2, world.member)
        fake.fake_set_async_error(world.handle, 1, REMOTE_ERROR)
        with pytest.raises(RuntimeError, match="rank 1: ncclCommGetAsyncError says made to fail") as raised:
            second.matmul_all_reduce(*case.of(1))
        assert code_of(raised.value) == "peer_lost"
        fake.fake_fail(world.handle, 0, len(world.calls(0)) + 1, SYSTEM_ERROR)
        with pytest.raises(RuntimeError, match=r"rank 0: ncclAllGather says made to fail \(2\); run with NCCL_DEBUG=WARN"
                           ) as raised:
            first.matmul_all_reduce(*case.of(0))
        assert (code_of(raised.value), raised.value.call) == ("communicator_failed", "ncclAllGather")


def test_staging_is_bounded():
    case = Case("all_gather_matmul", 2)
    needed = case.m * case.k * 4
    with World(2, staging_bytes=needed - 1) as world:
        with pytest.raises(ValueError, match=f"needs {needed} bytes of staging") as raised:
            case.run(world)
        assert code_of(raised.value) == "workspace_too_small"
    with World(2, staging_bytes=needed) as world:
        case.check(world)


@pytest.mark.parametrize("waits", [False, True])
def test_a_process_ends_with_it(waits):
    """Also while a daemon thread waits for another rank."""
    program = textwrap.dedent(f"""
        import ctypes, threading, time
        import numpy as np
        fake = ctypes.CDLL({FAKE!r})
        fake.fake_make.restype = fake.fake_communicator.restype = ctypes.c_void_p
        fake.fake_communicator.argtypes = ctypes.c_void_p, ctypes.c_int
        import jitgemm
        world = fake.fake_make(2)
        members = []
        make = lambda rank: members.append(jitgemm.TensorParallel(fake.fake_communicator(world, rank), timeout_seconds=0))
        threads = [threading.Thread(target=make, args=(rank,)) for rank in range(2)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        if {waits}:
            a = np.ones((4, 4), "f4")
            threading.Thread(target=lambda: members[0].matmul_all_reduce(a, a), daemon=True).start()
            time.sleep(0.3)
        print("done")
    """)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


# ------------------------------------------------------------------------------------------------- process groups


class Backend:
    """As torch's of NCCL is, which has a communicator once it has communicated, for the current device."""

    def __init__(self, address: int, ready: bool = True) -> None:
        self.address, self.ready, self.asked = address, ready, []

    def _comm_ptr(self) -> int:
        self.asked.append(sys.modules["torch"].cuda.current)
        return self.address if self.ready else 0


class Group:
    def __init__(self, backend: object) -> None:
        self.backend, self.devices = backend, []

    def _get_backend(self, device: str) -> object:
        self.devices.append(device)
        if self.backend is None:
            raise RuntimeError("No backend type associated with device type")
        return self.backend


@pytest.fixture
def stand_in(monkeypatch):
    """What of torch is asked about a process group."""
    current = types.SimpleNamespace(current=3)

    @contextlib.contextmanager
    def device(name: str):
        before, current.current = current.current, int(name.partition(":")[2])
        yield
        current.current = before

    def all_reduce(tensor: object, group: Group) -> None:
        assert tensor == "1 element"
        group.backend.ready = group.backend.address != 0

    current.device, current.current_device = device, lambda: current.current
    torch = types.SimpleNamespace(device=str, cuda=current, zeros=lambda count, device: f"{count} element",
                                  distributed=types.SimpleNamespace(all_reduce=all_reduce))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


@pytest.mark.parametrize("ready", [True, False])
def test_a_process_group_s_communicator(stand_in, ready):
    with World(1) as world:
        group = Group(Backend(world.communicator(0), ready))
        member = jitgemm.TensorParallel(group, context=jitgemm.default_context("cpu"))
        assert group.devices == ["cpu"] and len(group.backend.asked) == (1 if ready else 2)
        gone = weakref.ref(group)
        del group
        assert gone() is not None  # its communicator is used
        assert (member.matmul_all_reduce(ones(4, 8), ones(8, 4)) == 8).all()
        del member
        assert gone() is None


def test_a_process_group_on_gpus(stand_in):
    from jitgemm._process_groups import communicator_of

    group = Group(Backend(4096))
    assert communicator_of(group, "cuda:1") == 4096 and communicator_of(group, None) == 4096
    assert group.devices == ["cuda:1", "cuda:3"] and group.backend.asked == [1, 3]
    wrapped = Group(types.SimpleNamespace(wrapped_pg=group.backend))
    assert communicator_of(wrapped, "cuda:0") == 4096


@pytest.mark.parametrize("backend, kind, message", [
    (None, TypeError, 'the process group has no backend for cpu; make it with backend="nccl"'),
    (types.SimpleNamespace(), TypeError, "backend for cpu is SimpleNamespace, which tells of no NCCL communicator"),
    (Backend(0), RuntimeError, "has no NCCL communicator on cpu after an all_reduce"),
])
def test_process_groups_without_nccl(stand_in, backend, kind, message):
    with pytest.raises(kind) as raised:
        jitgemm.TensorParallel(Group(backend), context=jitgemm.default_context("cpu"))
    assert message in str(raised.value)
