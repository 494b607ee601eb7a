"""Scales of blocks of 128 of k, laid out as kernels read them."""

from __future__ import annotations

import sys
from typing import Any

BLOCK = 128


def block_scales(scales: Any, operand: Any) -> Any:
    """Scales of blocks of an operand (rows, K) as float32 that matmul() takes: themselves, or a copy.

    scales has one for each 128 of k and each row, (rows, K / 128), or 128 of them, (rows / 128, K / 128), rounded up; of
    any strides and floating-point type, torch.float8_e8m0fnu too. Kernels read the first kind one 128 of k after the
    other, from a multiple of 4 rows to the next, strides (1, 4 * ceil(rows / 4)), and the second contiguous. So of torch,
    NumPy and CuPy:

        d = jitgemm.matmul(a, weight.T, scale_a=jitgemm.block_scales(scale_a, a),
                           scale_b=jitgemm.block_scales(weight_scale, weight).T)

    Of groups, (groups, rows, K), each has its own, for grouped_mm(): those of weights with their last two dimensions
    swapped, as the weights are.

    Scales that already lie so are returned as they are: those of DeepGEMM's get_mn_major_tma_aligned_tensor() do.
    """
    for name, array in (("scales", scales), ("operand", operand)):
        if not hasattr(array, "shape"):
            raise TypeError(f"block_scales takes arrays of torch, NumPy and CuPy; {name} is a "
                            f"{type(array).__qualname__}")
    if len(operand.shape) not in (2, 3) or len(scales.shape) != len(operand.shape):
        raise ValueError(f"block_scales takes scales and an operand of two dimensions, or of three with groups; they have "
                         f"{len(scales.shape)} and {len(operand.shape)}")
    *groups, rows, k = operand.shape
    k_blocks, row_blocks = -(-k // BLOCK), -(-rows // BLOCK)
    shape = tuple(scales.shape)
    if shape not in ((*groups, rows, k_blocks), (*groups, row_blocks, k_blocks)):
        raise ValueError(f"scales are {shape}, and of an operand {(*groups, rows, k)} they are {(*groups, rows, k_blocks)} or "
                         f"{(*groups, row_blocks, k_blocks)}; of a b (K, N) pass the transposes of both")
    by_row = shape[-2] == rows
    library = sys.modules.get(type(scales).__module__.partition(".")[0])
    if library is None or library.__name__ not in ("torch", "numpy", "cupy"):
        raise TypeError(f"block_scales takes arrays of torch, NumPy and CuPy, whose strides it can choose; scales are a "
                        f"{type(scales).__qualname__}")
    ld = -(-rows // 4) * 4 if by_row else k_blocks
    of_group = (k_blocks if by_row else row_blocks) * ld
    if scales.dtype == library.float32 and _lies(scales, library,
                                                 (of_group,) * len(groups) + ((1, ld) if by_row else (ld, 1))):
        return scales
    made = (*groups, k_blocks, ld) if by_row else shape
    laid = library.empty(made, dtype=library.float32, **({"device": scales.device} if library.__name__ == "torch" else {}))
    view = laid[..., :rows].swapaxes(-1, -2) if by_row else laid
    view[...] = scales
    return view


def _lies(scales: Any, library: Any, strides: tuple[int, ...]) -> bool:
    if library.__name__ == "torch":
        steps = scales.stride()
    else:
        steps = tuple(stride // scales.itemsize for stride in scales.strides)
    return all(extent <= 1 or step == expected for extent, step, expected in zip(scales.shape, steps, strides))
