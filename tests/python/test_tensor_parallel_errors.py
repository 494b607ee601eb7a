"""What TensorParallel refuses, ranks that never come, and NCCL that fails. Ranks are threads, on the emulator."""
import contextlib
import subprocess
import sys
import textwrap
import threading
import time
import types

import numpy as np
import pytest
from parallel_world import FAKE, Case, World, fake, on_each_rank, ones

import jitgemm

SYSTEM_ERROR, REMOTE_ERROR = 2, 6  # ncclResult_t


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
