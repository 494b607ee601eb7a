"""The driver and NVRTC of fake_cuda.cpp, which count, record and fail, and arrays in their memory.

CMake's target fake_cuda makes them: tools/wheel.sh and ctest name their folder in JITGEMM_FAKE_CUDA.
"""
import ctypes
import os

import numpy as np
import pytest

FOLDER = os.environ.get("JITGEMM_FAKE_CUDA")
if not FOLDER:
    pytest.skip("JITGEMM_FAKE_CUDA names no driver to fail, as tools/wheel.sh and ctest do", allow_module_level=True)
LIBRARY = os.path.join(FOLDER, "libcuda.so.1")
os.environ |= {"JITGEMM_NVRTC": LIBRARY, "JITGEMM_LOG": "info"}
fake = ctypes.CDLL(LIBRARY)  # from now on, this is what opening libcuda.so.1 gives
for function in (fake.fake_names, fake.fake_failures, fake.fake_counts, fake.fake_order):
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


def failures_of(function: str) -> dict[str, int]:
    """What a function may plausibly answer when it fails."""
    lines = (line.split() for line in fake.fake_failures(function.encode()).decode().splitlines())
    return {name: int(number) for name, number in lines}


def arm(function: str | None = None, occurrence: int = 0, result: int = 0, helper_thread: bool = False) -> None:
    fake.fake_arm(function.encode() if function else None, helper_thread, occurrence, result)


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
