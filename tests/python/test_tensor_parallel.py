"""TensorParallel's products, and what runs for them. Ranks are threads, on the emulator."""
import gc
import threading
import weakref

import numpy as np
import pytest
from parallel_world import METHODS, Case, World, exact, on_each_rank, rng

import jitgemm


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
