"""Ranks that are threads of this process, and what they multiply. Their NCCL is fake_nccl.cpp, their device the emulator.

Needs the NCCL that CMake's target fake_nccl makes: tools/wheel.sh and ctest name it in JITGEMM_FAKE_NCCL.
"""
import ctypes
import os
import threading
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


def ones(*shape: int, dtype: str = "f4") -> np.ndarray:
    return np.ones(shape, dtype)
