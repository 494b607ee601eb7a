"""What is done while calls of the driver or of NVRTC fail."""
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from fake_cuda import BY_TMA, ELSEWHERE, PRODUCT, SPLIT, STREAM, STREAM_K, TUNED, fake  # before jitgemm

import jitgemm

SHARED_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where syncing costs nothing


class World:
    """A Context with a cache of its own."""

    def __init__(self, **options: object) -> None:
        self.folder = tempfile.mkdtemp(prefix="jitgemm-test-", dir=SHARED_MEMORY)
        # A budget that no busy machine uses up: what is not measured in time is a line in the log, too.
        self.options = {"tuning": "off", "tuning_budget_seconds": 60, "cache_dir": self.folder} | options
        self.context = jitgemm.Context("cuda:0", **self.options)

    def close(self) -> None:
        self.context = None
        gc.collect()

    def remove(self) -> None:
        self.close()
        shutil.rmtree(self.folder)


def make_context(world: World) -> None:
    assert jitgemm.Context("cuda:0", **world.options).device.sm_count == 132


def describe(world: World) -> None:
    plan = world.context.plan(PRODUCT.problem)
    assert plan.config in jitgemm.explain(PRODUCT.a, PRODUCT.b, context=world.context)
    assert "__global__" in world.context.source(PRODUCT.problem)
    assert world.context.workspace_size(PRODUCT.problem, SPLIT) > 0
    assert len(world.context.candidates(PRODUCT.problem)) > 1


def compile_one(world: World) -> None:
    assert world.context.compile(PRODUCT.problem, SPLIT).registers == 96


def warm(world: World) -> None:
    world.context.warm(PRODUCT.problem)
    assert all(binary.startswith(b"\x7fELF") for binary in world.context.binaries(PRODUCT.problem).values())


def multiply(config: str) -> Callable[[World], None]:
    return lambda world: PRODUCT.run(config=config, context=world.context)


def repeated(world: World) -> None:
    product = jitgemm.Matmul(PRODUCT.a, PRODUCT.b, config=SPLIT, context=world.context)
    for _ in range(2):
        PRODUCT.d.values[:] = np.nan
        assert product(PRODUCT.a, PRODUCT.b, out=PRODUCT.d) is PRODUCT.d
        PRODUCT.check()


def captured(world: World) -> None:
    PRODUCT.d.values[:] = np.nan
    fake.fake_begin_capture(STREAM)
    try:
        for _ in range(2):
            jitgemm.matmul(PRODUCT.a, PRODUCT.b, out=PRODUCT.d, config=STREAM_K, context=world.context, stream=STREAM)
    finally:
        graph = fake.fake_end_capture(STREAM)
        try:
            if sys.exception() is None:
                assert fake.fake_launch_graph(graph) == 0
                PRODUCT.check()
        finally:
            fake.fake_destroy_graph(graph)
    world.context.trim()


def tune(world: World) -> None:
    seen = []
    report = world.context.tune(TUNED.problem, progress=lambda *at: seen.append(at))
    assert report.plan.measured_us > 0 and seen[-1][0] == seen[-1][1]


def on_second_device(world: World) -> None:
    context = jitgemm.Context("cuda:1", **world.options)
    ELSEWHERE.run(config=SPLIT, context=context)


@dataclass
class Step:
    name: str
    run: Callable[[World], None]
    prepare: Callable[[World], None] = lambda world: None
    tuning: str = "off"
    tunes: bool = False  # which calls are made, and on which threads, is not always the same
    ends: bool = False  # a Context


STEPS = [
    Step("devices", lambda world: [device.name for device in jitgemm.devices()]),
    Step("Context", make_context, ends=True),
    Step("explain", describe),
    Step("compile", compile_one),
    Step("warm", warm),
    Step("matmul", multiply(SPLIT)),
    Step("matmul again", multiply(SPLIT), multiply(SPLIT)),
    Step("matmul from disk", multiply(SPLIT), compile_one),
    Step("matmul by TMA", multiply(BY_TMA)),
    Step("matmul captured", captured, captured),
    Step("Matmul", repeated),
    Step("matmul that tunes first", lambda world: TUNED.run(context=world.context), tuning="on", tunes=True),
    Step("tune", tune, tunes=True),
    Step("trim", lambda world: world.context.trim(), multiply(SPLIT)),
    Step("second device", on_second_device, ends=True),
    Step("end", World.close, multiply(SPLIT), ends=True),
]


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """The driver and NVRTC, which a process loads once."""
    world = World()
    compile_one(world)
    world.remove()
