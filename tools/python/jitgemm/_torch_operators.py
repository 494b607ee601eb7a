"""The operators torch.ops.jitgemm.matmul and matmul_out: what they compute, and their shapes, autocast and vmap.

Their gradients are in _torch_gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor

from jitgemm import _core

_ARGUMENTS = ("Tensor a, Tensor b, Tensor? c, Tensor? bias, float alpha, float beta, str activation, float slope, "
              "ScalarType? out_dtype, str precision, str accumulation, Tensor? scale_a, Tensor? scale_b, "
              "Tensor? scale_d, str config")
library = torch.library.Library("jitgemm", "DEF")
library.define(f"matmul({_ARGUMENTS}) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
library.define(f"matmul_out({_ARGUMENTS}, *, Tensor(z!) out) -> ()", tags=torch.Tag.pt2_compliant_tag)

EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
AUTOCAST = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}


@torch.library.impl(library, "matmul", "CompositeExplicitAutograd")
def _matmul(*arguments) -> Tensor:
    return _core.compute(*arguments)


@torch.library.impl(library, "matmul_out", "CompositeExplicitAutograd")
def _matmul_out(*arguments, out: Tensor) -> None:
    _core.compute(*arguments, out)


def _check_fake(a, b, c, bias, alpha, beta, activation, slope, out_dtype, precision, accumulation, scale_a, scale_b,
                scale_d, config) -> tuple[list, torch.dtype]:
    """Shape and type of the result."""
    for name, tensor in (("a", a), ("b", b)):
        torch._check_value(tensor.dim() > 0, lambda: f"{name} has no dimension; to multiply by a number use alpha")
    rows = b.shape[0] if b.dim() == 1 else b.shape[-2]
    torch._check_value(a.shape[-1] == rows,
                       lambda: f"a is {tuple(a.shape)} and b is {tuple(b.shape)}: the last dimension of a, {a.shape[-1]}, "
                               f"is not {'that' if b.dim() == 1 else 'the last but one'} of b, {rows}; transpose one of "
                               "them")
    torch._check_value(a.dtype == b.dtype or (a.dtype in EIGHT_BITS and b.dtype in EIGHT_BITS),
                       lambda: f"no kernel multiplies a = {a.dtype} by b = {b.dtype}: convert one of them")
    shape = list(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    if a.dim() > 1:
        shape.append(a.shape[-2])
    if b.dim() > 1:
        shape.append(b.shape[-1])
    usual = torch.bfloat16 if a.dtype in EIGHT_BITS else torch.int32 if a.dtype == torch.int8 else a.dtype
    dtype = out_dtype or usual
    added = torch.bfloat16 if dtype in EIGHT_BITS else dtype
    for name, tensor in (("c", c), ("bias", bias)):
        torch._check_type(tensor is None or tensor.dtype == added,
                          lambda: f"{name} is of {tensor.dtype}, and goes with a result of {dtype} as {added}; convert "
                                  "it")
    torch._check_value(c is None or list(c.shape) == shape,
                       lambda: f"c is {tuple(c.shape)} and the result {tuple(shape)}: they must be alike; what is added "
                               "to each row is a bias")
    if bias is not None:
        m, n = 1 if a.dim() == 1 else a.shape[-2], 1 if b.dim() == 1 else b.shape[-1]
        column = _is_column(a, b)
        if bias.dim() == 1:
            fits = bias.shape[0] == (m if column else n)
        else:
            fits = bias.dim() == 2 and (tuple(bias.shape) == (1, n) or tuple(bias.shape) == (m, 1))
        torch._check_value(fits, lambda: f"bias is {tuple(bias.shape)} and the result {tuple(shape)}: pass one of shape "
                                         + (f"({m},)" if column else f"({n},), or ({m}, 1) for one value a row"))
    return shape, dtype


@torch.library.register_fake("jitgemm::matmul", lib=library)
def _fake(*arguments) -> Tensor:
    shape, dtype = _check_fake(*arguments)
    return arguments[0].new_empty(shape, dtype=dtype)


@torch.library.register_fake("jitgemm::matmul_out", lib=library)
def _fake_out(*arguments, out: Tensor) -> None:
    shape, _ = _check_fake(*arguments[:8], out.dtype, *arguments[9:])
    torch._check_value(list(out.shape) == shape,
                       lambda: f"out is {tuple(out.shape)}, and the result {tuple(shape)}; pass an array of that shape")


def _is_column(a: Tensor, b: Tensor) -> bool:
    """Whether the result is a vector that belongs to rows: then so does a bias of one dimension."""
    return a.dim() == 2 and b.dim() == 1


def cast_arguments(device: str, a, b, c, bias, alpha, beta, activation, slope, out_dtype, precision, *rest) -> tuple:
    """As torch's matmul under autocast: operands of 32 and 16 bits become the type that it asks for."""
    narrow = (torch.float32, torch.float16, torch.bfloat16)
    if a.dtype not in narrow:
        return a, b, c, bias, alpha, beta, activation, slope, out_dtype, precision, *rest
    dtype = torch.get_autocast_dtype(device)

    def cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        return tensor.to(dtype) if tensor is not None and tensor.dtype in narrow else tensor

    added = out_dtype or dtype
    return (cast(a, dtype), cast(b, dtype), cast(c, added), cast(bias, added), alpha, beta, activation, slope,
            out_dtype, "", *rest)


def _register_autocast(device: str, key: str) -> None:
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def autocast(*arguments) -> Tensor:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return torch.ops.jitgemm.matmul(*cast_arguments(device, *arguments))

    def autocast_out(*arguments, out: Tensor) -> None:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            torch.ops.jitgemm.matmul_out(*cast_arguments(device, *arguments), out=out)

    library.impl("matmul", autocast, key)
    library.impl("matmul_out", autocast_out, key)


for _device, _key in AUTOCAST.items():
    _register_autocast(_device, _key)


def _vmap(info, in_dims: tuple, a, b, c, bias, alpha, beta, *rest) -> tuple[Tensor, int]:
    dims = dict(zip(("a", "b", "c", "bias"), in_dims))
    if any(dim is not None for dim in in_dims[11:14]):
        raise NotImplementedError("vmap over scales of jitgemm.matmul; scale the operands or the result instead")

    def mapped(tensor: Tensor, name: str) -> Tensor:
        """With the mapped dimension first."""
        return tensor.unsqueeze(0) if dims[name] is None else tensor.movedim(dims[name], 0)

    def insert(tensor: Tensor, rank: int) -> Tensor:
        """Dimensions after the mapped one."""
        return tensor.reshape(tensor.shape[0], *[1] * (rank - tensor.dim()), *tensor.shape[1:])

    left, right = mapped(a, "a"), mapped(b, "b")
    row, column = left.dim() == 2, right.dim() == 2
    of_rows = left.dim() == 3 and column  # a bias of one dimension is a value a row
    left = left.unsqueeze(1) if row else left
    right = right.unsqueeze(2) if column else right
    rank = max(left.dim(), right.dim())
    left, right = insert(left, rank), insert(right, rank)
    if bias is not None:
        one = bias.dim() - (dims["bias"] is not None) == 1
        bias = mapped(bias, "bias")
        bias = bias.unsqueeze(-1) if one and of_rows else bias
        bias = insert(bias.unsqueeze(-2) if bias.dim() == 2 else bias, rank)
    if c is not None:
        c = mapped(c, "c")
        c = c.unsqueeze(-1) if column else c
        c = c.unsqueeze(-2) if row else c
    if dims["bias"] is not None:  # then it is no vector, but one for each: part of c
        c, beta, bias = bias if c is None else beta * c + bias, 1.0, None
    elif bias is not None:
        bias = bias.reshape(bias.shape[-2:])
    if c is not None:
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2], (info.batch_size, *[1] * (rank - 3)))
        c = c.expand(*batch, left.shape[-2], right.shape[-1])
        left = left.expand(*batch, *left.shape[-2:])
    result = torch.ops.jitgemm.matmul(left, right, c, bias, alpha, beta, *rest)
    if column:
        result = result.squeeze(-1)
    if row:
        result = result.squeeze(-1 if column else -2)
    return result, 0


torch.library.register_vmap("jitgemm::matmul", _vmap, lib=library)
