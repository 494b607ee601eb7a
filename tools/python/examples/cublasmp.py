"""cuBLASMp 0.7's products for peers_parallel.py, by ctypes: the wheel nvidia-cublasmp-cu13 0.7 has no Python of its own, and
later ones ask for a newer NCCL than torch 2.11 brings.

Column-major, as cuBLASMp sees it, D^T = B^T A^T: the weights are its first operand and the tokens its second. A rank's part of
a matrix is one block, so the grid of processes is a row or a column of ranks (docs.nvidia.com/cuda/cublasmp/usage/tp.html).
"""
from __future__ import annotations

import ctypes
import importlib
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import torch
import torch.distributed as dist

BF16, COMPUTE_F32, NO_TRANSPOSE, TRANSPOSE = 14, 68, 0, 1  # of cudaDataType_t, cublasComputeType_t, cublasOperation_t
TRANS_A, TRANS_B, ALGORITHM = 0, 1, 3  # of cublasMpMatmulDescriptorAttribute_t
RANKS_ALONG_ROWS, RANKS_ALONG_COLUMNS = 0, 1  # of cublasMpGridLayout_t, with as many rows, or columns, as ranks
ALGORITHMS = {"default": 0, "split": 1, "atomic": 3}  # those without NVLink multicast


def load(package: str, name: str) -> ctypes.CDLL:
    """A library of one of NVIDIA's wheels, for all that is loaded later."""
    folders = importlib.import_module(package).__path__
    found = [path for folder in folders for path in Path(folder).glob(f"**/{name}")]
    if not found:
        raise RuntimeError(f"cuBLASMp needs {name} of the package {package}, which has none")
    return ctypes.CDLL(str(found[0]), mode=ctypes.RTLD_GLOBAL)


class CublasMp:
    """Grids and a handle over the communicator of torch's default group; collective, as are all its methods."""

    def __init__(self, library: str) -> None:
        """`library`: path of libcublasmp.so.0. Loads NCCL and NVSHMEM of torch's wheels first, which it is linked to."""
        load("nvidia.nccl", "libnccl.so.2")
        self.nvshmem = load("nvidia.nvshmem", "libnvshmem_host.so.3")
        self.nvshmem.nvshmem_malloc.restype = c_void_p
        self.nvshmem.nvshmem_malloc.argtypes = [c_size_t]
        self.nvshmem.nvshmem_free.argtypes = [c_void_p]
        self.library = ctypes.CDLL(library)
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        device = torch.device("cuda", torch.cuda.current_device())
        communicator = dist.group.WORLD._get_backend(device)._comm_ptr()
        self.stream = torch.cuda.current_stream()
        self.handle, self.along_rows, self.along_columns = c_void_p(), c_void_p(), c_void_p()
        self._call("cublasMpCreate", byref(self.handle), c_void_p(self.stream.cuda_stream))
        self._call("cublasMpGridCreate", c_int64(self.ranks), c_int64(1), c_int(RANKS_ALONG_ROWS), c_void_p(communicator),
                   byref(self.along_rows))
        self._call("cublasMpGridCreate", c_int64(1), c_int64(self.ranks), c_int(RANKS_ALONG_COLUMNS),
                   c_void_p(communicator), byref(self.along_columns))

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self.library, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function} returned {status}")

    def close(self) -> None:
        torch.cuda.synchronize()
        self._call("cublasMpGridDestroy", self.along_rows)
        self._call("cublasMpGridDestroy", self.along_columns)
        self._call("cublasMpDestroy", self.handle)


class Product:
    """One product, its workspace allocated; call it to enqueue it on the stream on which the CublasMp was made."""

    def __init__(self, mp: CublasMp, a: torch.Tensor, b: torch.Tensor, gathers: bool, algorithm: str) -> None:
        """`a`: this rank's rows of tokens where it `gathers`, else all rows and its part of k; `b`: [k, n] of this rank,
        its columns contiguous."""
        self.mp = mp
        ranks, local_k, local_n = mp.ranks, b.shape[0], b.shape[1]
        tokens = a.shape[0] * (ranks if gathers else 1)
        n, k = (local_n * ranks, local_k) if gathers else (local_n, local_k * ranks)
        inputs, output = ((mp.along_columns, mp.along_rows) if gathers else (mp.along_rows, mp.along_columns))
        self.d = a.new_empty((tokens, local_n) if gathers else (tokens // ranks, n))
        block = tokens // ranks  # of both, though one of them has all blocks on each rank: cuBLASMp wants them equal
        self.weights = self._matrix(k, n, local_k, local_n, inputs)
        self.tokens = self._matrix(k, tokens, local_k, block, inputs)
        self.out = self._matrix(n, tokens, local_n, block, output)
        self.descriptor = c_void_p()
        mp._call("cublasMpMatmulDescriptorCreate", byref(self.descriptor), c_int(COMPUTE_F32))
        for attribute, value in ((TRANS_A, TRANSPOSE), (TRANS_B, NO_TRANSPOSE), (ALGORITHM, ALGORITHMS[algorithm])):
            mp._call("cublasMpMatmulDescriptorAttributeSet", self.descriptor, c_int(attribute), byref(c_int(value)),
                     c_size_t(4))
        one, zero, first = c_float(1), c_float(0), c_int64(1)
        self.kept = (a, b, one, zero)
        self.arguments = (mp.handle, self.descriptor, c_int64(n), c_int64(tokens), c_int64(k), byref(one),
                          c_void_p(b.data_ptr()), first, first, self.weights, c_void_p(a.data_ptr()), first, first,
                          self.tokens, byref(zero), c_void_p(), first, first, self.out, c_void_p(self.d.data_ptr()), first,
                          first, self.out)
        device_bytes, host_bytes = c_size_t(), c_size_t()
        mp._call("cublasMpMatmul_bufferSize", *self.arguments, byref(device_bytes), byref(host_bytes))
        self.workspace = mp.nvshmem.nvshmem_malloc(max(device_bytes.value, 16))
        if not self.workspace:
            raise RuntimeError(f"nvshmem_malloc has no {device_bytes.value} bytes; raise NVSHMEM_SYMMETRIC_SIZE")
        self.host_workspace = ctypes.create_string_buffer(max(host_bytes.value, 1))
        self.arguments += (c_void_p(self.workspace), device_bytes, self.host_workspace, host_bytes)

    def _matrix(self, rows: int, columns: int, block_rows: int, block_columns: int, grid: c_void_p) -> c_void_p:
        """Column-major; each rank has one block of rows, so a block's rows are its leading dimension."""
        descriptor = c_void_p()
        self.mp._call("cublasMpMatrixDescriptorCreate", c_int64(rows), c_int64(columns), c_int64(block_rows),
                      c_int64(block_columns), c_int64(0), c_int64(0), c_int64(block_rows), c_int(BF16), grid,
                      byref(descriptor))
        return descriptor

    def __call__(self) -> torch.Tensor:
        self.mp._call("cublasMpMatmul", *self.arguments)
        return self.d

    def close(self) -> None:
        torch.cuda.synchronize()
        self.mp.nvshmem.nvshmem_free(c_void_p(self.workspace))
        self.mp._call("cublasMpMatmulDescriptorDestroy", self.descriptor)
        for matrix in (self.weights, self.tokens, self.out):
            self.mp._call("cublasMpMatrixDescriptorDestroy", matrix)
