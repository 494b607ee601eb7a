"""Arrays that a framework makes for results: a CuPy of a few lines, on the fake driver."""
import ctypes
import sys
import types
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from fake_cuda import KINDS, SPLIT, STREAM, Array, arm, failures_of, fake
from fault_scenario import World

import jitgemm
from jitgemm import epilogues

CURRENT = 0x6000  # the framework's stream
CuPyArray = type("ndarray", (Array,), {"__module__": "cupy"})


class Device:
    current = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> None:
        self.before, Device.current = Device.current, self.number

    def __exit__(self, *exception: object) -> None:
        Device.current = self.before


def random(rows: int, columns: int, device: int = 0) -> Array:
    array = CuPyArray(rows, columns, device)
    array.values[:] = np.random.default_rng().integers(-3, 4, (rows, columns))
    return array


def empty(shape: tuple[int, ...], dtype: object) -> Array:
    """A matrix, of which three dimensions are one group's."""
    rows, columns = shape[-2:]
    array = CuPyArray(rows, columns, Device.current)
    if len(shape) == 3:
        array.shape, array.strides = (ctypes.c_int64 * 3)(1, rows, columns), (ctypes.c_int64 * 3)(0, columns, 1)
        array.tensor.ndim, array.tensor.shape, array.tensor.strides = 3, array.shape, array.strides
    return array


def end_of_one_group(end: int) -> Array:
    """An int32, as an array."""
    array = CuPyArray(1, 2)
    array.values.view(np.int32)[:] = end
    array.tensor.ndim, array.tensor.code, array.tensor.bits = 1, 0, 32
    return array


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    module = types.ModuleType("cupy")
    module.cuda = types.SimpleNamespace(Device=Device, get_current_stream=lambda: types.SimpleNamespace(ptr=CURRENT))
    module.float16 = "float16"
    module.empty = empty
    monkeypatch.setitem(sys.modules, "cupy", module)
    yield module
    assert Device.current == 0


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.remove()


def order_of(call: Callable[..., object], **words: object) -> list[str]:
    """What a call puts on streams, and on which."""
    fake.fake_order()
    call(**words)
    return [f"{what} {int(stream):#x}" for what, stream in map(str.split, fake.fake_order().decode().splitlines())]


def test_a_stream_waits_for_who_used_the_memory_of_a_result_before(cupy: types.ModuleType, world: World):
    a, b, out, before = random(16, 128), random(128, 16), CuPyArray(16, 16), CuPyArray(16, 16)
    product = jitgemm.Matmul(a, b, config=SPLIT, context=world.context)
    offs = end_of_one_group(128)
    gelu = {"epilogue": epilogues.gelu("f16"), "config": SPLIT, "context": world.context}
    with_output = jitgemm.Matmul(a, b, **gelu)

    def matmul(**words: object) -> object:
        return jitgemm.matmul(a, b, config=SPLIT, context=world.context, **words)

    def grouped(**words: object) -> object:
        return jitgemm.grouped_mm(a, b, offs, context=world.context, **words)

    assert (matmul(stream=STREAM).values == a.values.astype(np.float32) @ b.values.astype(np.float32)).all()
    waits = [f"record {CURRENT:#x}", f"wait {STREAM:#x}"]
    calls = [(matmul, {"out": out}), (product, {"out": out}),
             (lambda **words: jitgemm.matmul(a, b, **gelu, **words), {"out": out, "operands": {"before": before}}),
             (with_output, {"out": out, "operands": {"before": before}})]
    for call, given in calls:
        launches = order_of(call, stream=STREAM, **given)
        assert launches and set(launches) == {f"launch {STREAM:#x}"}
        for name in given:
            some = {key: value for key, value in given.items() if key != name}
            assert order_of(call, stream=STREAM, **some) == waits + launches
            assert set(order_of(call, stream=CURRENT, **some)) == {f"launch {CURRENT:#x}"}
            assert set(order_of(call, **some)) == {f"launch {CURRENT:#x}"}
    assert order_of(grouped, stream=STREAM)[:2] == waits


def test_no_wait_leads_into_a_capture_or_out_of_it(cupy: types.ModuleType, world: World):
    a, b = random(16, 128), random(128, 16)

    def matmul(**words: object) -> object:
        return jitgemm.matmul(a, b, config=SPLIT, context=world.context, **words)

    launches = [f"launch {STREAM:#x}"] * (len(order_of(matmul, stream=STREAM)) - 2)
    for captured in (STREAM, CURRENT):
        fake.fake_begin_capture(captured)
        try:
            assert order_of(matmul, stream=STREAM) == launches
        finally:
            fake.fake_destroy_graph(fake.fake_end_capture(captured))


def test_the_current_device_stays_when_no_array_can_be_made(cupy: types.ModuleType):
    a, b = random(16, 128, 1), random(128, 16, 1)
    with pytest.MonkeyPatch.context() as patch:
        def full(shape: tuple[int, int], dtype: object) -> Array:
            raise MemoryError(f"on device {Device.current}")

        patch.setattr(cupy, "empty", full)
        with pytest.raises(MemoryError, match="on device 1"):
            jitgemm.matmul(a, b)
        assert Device.current == 0
        patch.delattr(cupy, "float16")
        patch.setitem(sys.modules, "ml_dtypes", None)
        with pytest.raises(TypeError, match="cupy has no float16; install ml_dtypes"):
            jitgemm.matmul(a, b)
    assert Device.current == 0


@pytest.mark.parametrize("function", ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"])
def test_a_wait_that_fails_is_one_exception(cupy: types.ModuleType, world: World, function: str):
    a, b = random(16, 128), random(128, 16)
    jitgemm.matmul(a, b, config=SPLIT, context=world.context, stream=STREAM)
    before = fake.fake_alive()
    name, result = next(iter(failures_of(function).items()))
    arm(function, 1, result)
    with pytest.raises((RuntimeError, MemoryError), match=f"{function} failed: {name}") as caught:
        jitgemm.matmul(a, b, config=SPLIT, context=world.context, stream=STREAM)
    arm()
    assert type(caught.value) is KINDS.get(caught.value.code, RuntimeError) and fake.fake_alive() == before
