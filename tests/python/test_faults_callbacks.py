"""A driver that fails beside callbacks that raise, in several threads, and where the default Context is made."""
import contextlib
import threading
import time
from collections.abc import Iterator

import pytest
from fake_cuda import ELSEWHERE, KINDS, PRODUCT, SPLIT, STREAM, TUNED, Product, arm, failures_of, fake, holds_lock
from fault_results import Log, log  # noqa: F401
from fault_scenario import World, loaded, tune  # noqa: F401

import jitgemm


@contextlib.contextmanager
def compiling_held() -> Iterator[None]:
    """Meanwhile no kernel becomes ready in the background."""
    fake.fake_hold_compiling()
    try:
        yield
    finally:
        fake.fake_let_compile()


def test_what_a_callback_raises_comes_out_beside_a_failing_driver(log: Log):
    before = fake.fake_alive()
    raised = []

    def stopped(done: int, total: int) -> None:
        raised.append(ZeroDivisionError(f"{done} of {total}"))
        raise raised[-1]

    world = World()
    arm("cuEventDestroy", 1, failures_of("cuEventDestroy").popitem()[1])
    with pytest.raises(ZeroDivisionError) as caught:
        world.context.tune(TUNED.problem, progress=stopped)
    arm()
    assert caught.value is raised[-1] and holds_lock() == 1
    del caught
    raised.clear()
    lost = sum("stays until" in line for line in log.said())
    tune(world)
    world.remove()
    assert log.said() == [] and fake.fake_alive() - before == lost <= 1


def test_a_fallback_raises_while_the_kernel_fails_to_load(log: Log):
    before = fake.fake_alive()
    asked = []

    def fallback(problem: jitgemm.Problem, pointers: dict[str, int | None], stream: int) -> bool:
        asked.append(problem.m)
        raise KeyError("mine")

    world = World(compile_in_background=True, fallback=fallback)
    arm("cuModuleLoadData", 1, failures_of("cuModuleLoadData")["CUDA_ERROR_OUT_OF_MEMORY"], helper_thread=True)
    with compiling_held(), pytest.raises(KeyError, match="mine"):
        PRODUCT.run(context=world.context)
    give_up = time.monotonic() + 60
    while not fake.fake_fired() and time.monotonic() < give_up:
        time.sleep(0.01)
    fired = fake.fake_fired()
    arm()
    assert fired and asked == [16] and holds_lock() == 1
    while time.monotonic() < give_up:
        try:
            PRODUCT.run(context=world.context)
            break
        except KeyError:  # the other thread has not noticed yet
            pass
    PRODUCT.check()
    world.remove()
    [line] = log.said()
    assert "the next call will tell: cuModuleLoadData failed: CUDA_ERROR_OUT_OF_MEMORY" in line
    assert fake.fake_alive() == before


def test_a_failure_within_a_fallback_is_the_same_exception_outside(log: Log):
    before = fake.fake_alive()
    other = World()
    inner = []

    def fallback(problem: jitgemm.Problem, pointers: dict[str, int | None], stream: int) -> bool:
        try:
            PRODUCT.run(config=SPLIT, context=other.context)
        except RuntimeError as error:
            inner.append(error)
            raise
        return False

    world = World(compile_in_background=True, fallback=fallback)
    arm("cuLaunchKernelEx", 1, failures_of("cuLaunchKernelEx")["CUDA_ERROR_ILLEGAL_ADDRESS"])
    with compiling_held(), pytest.raises(RuntimeError) as caught:
        TUNED.run(context=world.context)
    arm()
    assert caught.value is inner[0] and caught.value.code == "launch_failed"
    assert caught.value.call == "cuLaunchKernelEx" and caught.value.config.startswith("sm80 64x64x32")
    del caught
    inner.clear()
    TUNED.run(context=world.context)
    world.remove()
    other.remove()
    assert log.said() == [] and fake.fake_alive() == before


def test_threads_that_fail_together_get_an_exception_each(log: Log):
    before = fake.fake_alive()
    world = World()
    products = [Product(16, 16, 128) for _ in range(4)]
    for product in products:
        product.run(config=SPLIT, context=world.context)
    errors = []

    def fail(product: Product, stream: int) -> None:
        for _ in range(20):
            try:
                product.run(config=SPLIT, context=world.context, stream=stream)
            except RuntimeError as error:
                errors.append(error.with_traceback(None))

    def succeed(product: Product, stream: int) -> None:
        product.run(config=SPLIT, context=world.context, stream=stream)

    for target, result in ((fail, failures_of("cuLaunchKernelEx")["CUDA_ERROR_ILLEGAL_ADDRESS"]), (succeed, None)):
        arm()
        if result is not None:
            fake.fake_fail_always(b"cuLaunchKernelEx", result)
        threads = [threading.Thread(target=target, args=(product, STREAM + i)) for i, product in enumerate(products)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(errors) == len({id(error) for error in errors}) == 80
    assert {(error.code, error.call) for error in errors} == {("launch_failed", "cuLaunchKernelEx")}
    for product in products:
        product.check()
    world.remove()
    assert log.said() == [] and fake.fake_alive() == before


def test_the_default_context_is_made_by_the_call_after_the_one_that_failed(log: Log):
    before = fake.fake_alive()
    for name, result in failures_of("cuDevicePrimaryCtxRetain").items():
        arm("cuDevicePrimaryCtxRetain", 1, result)
        for call in (lambda: ELSEWHERE.run(config=SPLIT), lambda: jitgemm.default_context("cuda:1")):
            with pytest.raises((RuntimeError, MemoryError), match=name) as caught:
                call()
            arm("cuDevicePrimaryCtxRetain", 1, result)
            assert type(caught.value) is KINDS.get(caught.value.code, RuntimeError)
        assert fake.fake_alive() == before
    arm()
    ELSEWHERE.run(config=SPLIT)
    assert jitgemm.default_context("cuda:1").counters.launches == 1
    assert log.said() == []
