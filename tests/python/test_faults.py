"""Whichever call of the CUDA driver or of NVRTC fails, Python gets one exception or one line in the log, and nothing is
lost.

Needs the driver and NVRTC that count, record and fail, which CMake's target fake_cuda makes: ctest names their folder
in JITGEMM_FAKE_CUDA. What users see is what the same faults show in C++, tools/results/faults.md.
"""
import contextlib
import ctypes
import gc
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

FOLDER = os.environ.get("JITGEMM_FAKE_CUDA")
if not FOLDER:
    pytest.skip("JITGEMM_FAKE_CUDA names no driver to fail, as ctest does", allow_module_level=True)
LIBRARY = os.path.join(FOLDER, "libcuda.so.1")
os.environ |= {"JITGEMM_NVRTC": LIBRARY, "JITGEMM_LOG": "info"}
fake = ctypes.CDLL(LIBRARY)  # from now on, this is what opening libcuda.so.1 gives
for function in (fake.fake_names, fake.fake_failures, fake.fake_counts):
    function.restype = ctypes.c_char_p
for function in (fake.fake_allocate, fake.fake_end_capture):
    function.restype = ctypes.c_void_p
fake.fake_allocate.argtypes = (ctypes.c_size_t, ctypes.c_int)
for function in (fake.fake_begin_capture, fake.fake_end_capture, fake.fake_launch_graph, fake.fake_destroy_graph):
    function.argtypes = (ctypes.c_void_p,)

import jitgemm  # noqa: E402

KINDS = {"invalid_problem": ValueError, "invalid_operand": ValueError, "invalid_config": ValueError,
         "invalid_option": ValueError, "workspace_too_small": ValueError, "out_of_memory": MemoryError, "io": OSError}
SPLIT = "sm80 64x64x32 stages=3 schedule=split_k splits=2"
BY_TMA = "sm90 128x128x64 stages=4 warps=8 cluster=2x1x1 schedule=stream_k grid=2"
STREAM_K = "sm80 64x64x32 stages=3 schedule=stream_k grid=3"
STREAM = 0x5000
SHARED_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where syncing costs nothing


def failures_of(function: str) -> dict[str, int]:
    """What a function may plausibly answer when it fails."""
    lines = (line.split() for line in fake.fake_failures(function.encode()).decode().splitlines())
    return {name: int(number) for name, number in lines}


def arm(function: str | None = None, occurrence: int = 0, result: int = 0, helper_thread: bool = False) -> None:
    fake.fake_arm(function.encode() if function else None, helper_thread, occurrence, result)


# ---------------------------------------------------------------------------------------------------------- arrays


class Tensor(ctypes.Structure):
    """DLPack's DLManagedTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
holds_lock = ctypes.pythonapi.PyGILState_Check


class Array:
    """(rows, columns) float16 on a CUDA device; its memory is the host's, too."""

    CUDA, FLOAT = 2, 2
    KIND = b"dltensor"

    def __init__(self, rows: int, columns: int, device: int = 0) -> None:
        pointer = fake.fake_allocate(2 * rows * columns, device)
        memory = (ctypes.c_uint16 * (rows * columns)).from_address(pointer)
        self.values = np.frombuffer(memory, np.float16).reshape(rows, columns)
        self.device = device
        self.shape = (ctypes.c_int64 * 2)(rows, columns)
        self.strides = (ctypes.c_int64 * 2)(columns, 1)
        self.tensor = Tensor(pointer, self.CUDA, device, 2, self.FLOAT, 16, 1, self.shape, self.strides, 0, None, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.CUDA, self.device

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> object:
        return new_capsule(ctypes.addressof(self.tensor), self.KIND, None)


class Product:
    """d = a @ b, small integers, and what d must be."""

    def __init__(self, m: int, n: int, k: int, device: int = 0) -> None:
        self.a, self.b, self.d = Array(m, k, device), Array(k, n, device), Array(m, n, device)
        self.a.values[:] = (np.arange(m * k) % 5 - 2).reshape(m, k)
        self.b.values[:] = (np.arange(k * n) % 7 - 3).reshape(k, n)
        self.expected = self.a.values.astype(np.float32) @ self.b.values.astype(np.float32)
        self.problem = jitgemm.Problem(m, n, k)

    def run(self, **words: object) -> None:
        self.d.values[:] = np.nan
        assert jitgemm.matmul(self.a, self.b, out=self.d, **words) is self.d
        self.check()

    def check(self) -> None:
        assert (self.d.values == self.expected).all()


PRODUCT = Product(16, 16, 128)
ELSEWHERE = Product(16, 16, 128, device=1)
TUNED = Product(16, 16, 64)


# ------------------------------------------------------------------------------------------------------- scenario


class World:
    """A Context with a cache of its own."""

    def __init__(self, **options: object) -> None:
        self.folder = tempfile.mkdtemp(prefix="jitgemm-test-", dir=SHARED_MEMORY)
        self.options = {"tuning": "off", "cache_dir": self.folder} | options
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


# --------------------------------------------------------------------------------------------------------- faults


def recorded() -> dict[tuple[str, str], set[str]]:
    """What users may see of a call that answers a failure."""
    root = pathlib.Path(__file__).parents[2]
    table: dict[tuple[str, str], set[str]] = {}
    for line in (root / "tools/results/faults.md").read_text().splitlines():
        cells = line.split(" | ")
        if line.startswith("| ") and len(cells) == 4:
            table.setdefault((cells[0][2:], cells[1]), set()).add(cells[3].removesuffix(" |"))
    return table


RECORDED = recorded()


def without_names(text: str, world: World) -> str:
    """A text without what differs from one machine or problem to the next, as faults.md has it."""
    text = re.sub(re.escape(world.folder) + r"/\S+", "(file)", text)
    text = re.sub(r"of \d+ bytes", "of (n) bytes", text)
    text = re.sub(r"Tiled of [^(]*\([^)]*\)", "Tiled of (a matrix)", text)
    return re.sub(r"(tuning skipped|tuning of) [^:]*?(:| given up)", r"\1 (it)\2", text)


class Log:
    """What the library logs, line by line."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.capfd = capfd

    def said(self) -> list[str]:
        lines = [line.partition(" jitgemm ")[2] for line in self.capfd.readouterr().err.splitlines()]
        return [line for line in lines if not line.startswith("info: tuned ")]


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """The driver and NVRTC, which a process loads once."""
    world = World()
    compile_one(world)
    world.remove()


@pytest.fixture
def log(capfd: pytest.CaptureFixture[str]) -> Log:
    arm()
    return Log(capfd)


def calls_of(step: Step, log: Log) -> list[tuple[str, bool, int]]:
    """What a step calls when nothing fails: function, whether on a helper thread, how often."""
    before = fake.fake_alive()
    world = World(tuning=step.tuning)
    step.prepare(world)
    arm()
    step.run(world)
    counts = [line.split() for line in fake.fake_counts().decode().splitlines()]
    assert log.said() == []
    world.remove()
    assert fake.fake_alive() == before
    return [(name, helper == "1", int(count)) for name, helper, count in counts]


def require_clear(error: Exception, function: str) -> None:
    """One exception of Python's own kinds with the library's sentence."""
    assert type(error) is KINDS.get(error.code, RuntimeError)
    assert error.args == (str(error),) and "\n" not in str(error)
    assert error.__cause__ is None and error.__context__ is None
    short = function.partition("_v")[0]
    assert short in error.call
    if function != "nvrtcCompileProgram":
        assert short in str(error)
    elif error.code == "compile_failed":
        assert "made_to_fail" in error.log
    if error.code in ("compile_failed", "load_failed"):
        assert error.problem and (error.config or "no candidate can be checked" in str(error))
    assert all(isinstance(text, str) for text in (error.problem, error.config, error.log))


def with_fault(step: Step, function: str, helper: bool, occurrence: int, name: str, result: int, log: Log) -> bool:
    """Runs a step in which one call fails, and checks what that leaves behind. Whether the call was made."""
    before = fake.fake_alive()
    world = World(tuning=step.tuning)
    step.prepare(world)
    assert log.said() == []
    arm(function, occurrence, result, helper)
    error = None
    try:
        step.run(world)
    except (RuntimeError, ValueError, OSError, MemoryError) as caught:
        error = caught.with_traceback(None)  # whose frames hold objects
    fired = bool(fake.fake_fired())
    arm()
    assert holds_lock() == 1
    said = log.said()
    same_thread = fake.fake_restore_thread()
    assert same_thread or any("current context may be another" in line or "capture mode stays" in line for line in said)

    if fired and error is not None:
        require_clear(error, function)
        assert said == []
        # Where nothing was tuned before, the kernel that checks is the first to fail.
        text = without_names(str(error), world).removeprefix("no candidate can be checked: ")
        assert f"`{error.code}`: {text}" in RECORDED[function, name]
    elif fired:
        assert len(said) <= 1
        seen = "; log: ".join(["carries on", *(without_names(line, world) for line in said)])
        # The end of a Context waits for the device; what goes wrong with that is for the device's next call to say.
        assert seen in RECORDED[function, name] or (step.ends and not said)
    else:
        assert error is None

    if step.name != "end":
        step.run(world)  # the next one works
        assert log.said() == []
    world.remove()
    assert log.said() == []
    lost = fake.fake_alive() - before
    told = sum("stays until" in line for line in said)
    # The driver is gone, and has freed all.
    gone = name == "CUDA_ERROR_DEINITIALIZED" and error is None
    assert lost == told or (gone and lost == 1)
    return fired


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_failure_is_one_exception_or_one_line(step: Step, log: Log):
    wrong = []
    for function, helper, count in calls_of(step, log):
        occurrences = [1] if helper else sorted({1, min(count, 4) if step.tunes else count})
        for occurrence in occurrences:
            for name, result in list(failures_of(function).items())[:1 if helper or occurrence > 1 else None]:
                where = f"{function} = {name}, call {occurrence} of {count}{' on a helper thread' if helper else ''}"
                try:
                    fired = with_fault(step, function, helper, occurrence, name, result, log)
                    assert fired or step.tunes
                except Exception as error:  # one report of all
                    arm()
                    log.said()
                    wrong.append(f"{where}: {error!r}")
    assert not wrong, "\n".join(wrong)


# ------------------------------------------------------------------------------------- callbacks, threads, defaults


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


# -------------------------------------------------------------------------------------- processes that lack something


def finished(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process that has run a program, and can import this file."""
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True,
                          timeout=300, env=os.environ | {"PYTHONPATH": path} | environment)
    assert done.returncode == 0, done.stderr
    return done


def printed(program: str, *arguments: str, **environment: str) -> list[str]:
    return finished(program, *arguments, **environment).stdout.splitlines()


def test_loading_fails_until_all_is_there():
    assert printed("""
        from test_faults import *

        def fails(code, call):
            try:
                call()
            except RuntimeError as error:
                assert error.code == code and len(str(error).splitlines()) == 1, error
                return f"`{code}`: {error}"
            raise AssertionError("it works")

        optional = {"cuStreamGetCaptureInfo_v3", "cuGraphNodeGetDependencies_v2"}
        names = [name for name in fake.fake_names().decode().split() if name not in optional]
        missing = 0
        for name in names:
            os.environ["JITGEMM_FAKE_MISSING"] = name
            if name.startswith("cu"):
                for call in (lambda: jitgemm.Context("cuda:0"), lambda: PRODUCT.run()):
                    seen = fails("no_device", call)
                    assert seen.replace(name, "(it)") in RECORDED["each", "not there"], seen
                assert jitgemm.devices() == []
                missing += 1
        os.environ["JITGEMM_FAKE_MISSING"] = "cuStreamGetCaptureInfo_v3"
        for name, result in failures_of("cuInit").items():
            arm("cuInit", 1, result)
            assert fails("no_device", lambda: jitgemm.Context("cuda:0")) in RECORDED["cuInit", name]
        arm()
        world = World()
        for name in names:
            os.environ["JITGEMM_FAKE_MISSING"] = name
            if name.startswith("nvrtc"):
                seen = fails("no_compiler", lambda: compile_one(world))
                known = {row.replace("libnvrtc.so", LIBRARY) for row in RECORDED["each", "not there"]}
                assert seen.replace(f"no {name}", "no (it)") in known, seen
                missing += 1
        os.environ["JITGEMM_FAKE_MISSING"] = ""
        for name, result in failures_of("nvrtcVersion").items():
            arm("nvrtcVersion", 1, result)
            assert fails("no_compiler", lambda: compile_one(world)) in RECORDED["nvrtcVersion", name]
        arm()
        PRODUCT.run(config=SPLIT, context=world.context)
        world.remove()
        print(missing == len(names) > 50, fake.fake_alive())
    """) == ["True 0"]


WITHOUT_NVRTC = """
    from test_faults import *
    os.environ["JITGEMM_NVRTC"] = sys.argv[1]
    world = World()
    describe(world)
    for _ in range(2):
        try:
            PRODUCT.run(config=SPLIT, context=world.context)
        except (RuntimeError, ValueError) as error:
            print(type(error).__name__, error.code, error)
    cached = jitgemm.Context("cuda:0", tuning="off", cache_dir=sys.argv[2])
    PRODUCT.run(config=SPLIT, context=cached)  # compiled by another process
    del cached
    os.environ["JITGEMM_NVRTC"] = LIBRARY
    PRODUCT.run(config=SPLIT, context=world.context)
    world.remove()
    print(fake.fake_alive())
"""


@pytest.mark.parametrize("content, kind, code, message", [
    (b"no library", "RuntimeError", "no_compiler",
     r"no NVRTC to compile kernels with \(.* cannot be loaded\); install .*"),
    (None, "ValueError", "invalid_option",
     r"JITGEMM_NVRTC=.* is neither a libnvrtc.so nor a folder .*; correct or unset it"),
])
def test_without_nvrtc(content: bytes | None, kind: str, code: str, message: str, tmp_path: pathlib.Path, log: Log):
    cached = tmp_path / "cache"
    PRODUCT.run(config=SPLIT, context=jitgemm.Context("cuda:0", tuning="off", cache_dir=cached))
    library = tmp_path / "libnvrtc.so"
    if content is not None:
        library.write_bytes(content)
    *errors, alive = printed(WITHOUT_NVRTC, str(library), str(cached))
    assert len(errors) == 2 and alive == "0"
    for line in errors:
        assert re.fullmatch(f"{kind} {code} {message}", line), line


def test_without_a_driver(tmp_path: pathlib.Path):
    (tmp_path / "libcuda.so.1").write_bytes(b"no library")
    first, second = printed("""
        import jitgemm
        assert jitgemm.devices() == []
        for device in ("cuda", "cuda:1"):
            try:
                jitgemm.Context(device)
            except RuntimeError as error:
                print(error.code, error)
        assert "Fake" not in jitgemm.explain("16x16x16", context=jitgemm.Context("compile_only", architecture="sm_90a"))
    """, LD_LIBRARY_PATH=str(tmp_path))
    for line in (first, second):
        assert re.fullmatch(r"no_device no CUDA driver \(.*libcuda.so.1.*\); install the NVIDIA driver, .*", line), line


@pytest.mark.parametrize("function, name, lines", [
    ("cuStreamSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", 0), ("cuCtxGetCurrent", "CUDA_ERROR_DEINITIALIZED", 0),
    ("cuMemFree", "CUDA_ERROR_UNKNOWN", 1), ("cuDevicePrimaryCtxRelease", "CUDA_ERROR_UNKNOWN", 1)])
def test_a_process_ends_though_the_driver_fails(function: str, name: str, lines: int):
    done = finished("""
        from test_faults import *
        world = World()
        PRODUCT.run(config=SPLIT, context=world.context)
        PRODUCT.run(config=SPLIT)
        shutil.rmtree(world.folder)
        arm()
        fake.fake_fail_always(sys.argv[1].encode(), failures_of(sys.argv[1])[sys.argv[2]])
    """, function, name)
    assert len(done.stderr.splitlines()) == done.stderr.count(" jitgemm warning: ") == lines, done.stderr
