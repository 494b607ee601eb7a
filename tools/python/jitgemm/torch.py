"""jitgemm as operators of torch: gradients, autocast, torch.compile, CUDA graphs; and a drop-in Linear.

`jitgemm.matmul` and `jitgemm.linear` ask one question a call. Where nobody looks, they go past torch's dispatcher. For
gradients and autocast, an autograd function of ours stands in between. Where something looks at operators (compiling,
fake tensors, subclasses, torch.func), they are `torch.ops.jitgemm.matmul` and `torch.ops.jitgemm.matmul_out`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import handle_torch_function, has_torch_function

import jitgemm
from jitgemm import _core
from jitgemm._torch_gradients import record, refuse_gradients
from jitgemm._torch_operators import AUTOCAST, cast_arguments

__all__ = ["Linear", "linear", "matmul", "replace_linear"]

_ACTIVATIONS = (None, "relu", "leaky_relu", "gelu", "gelu_erf", "gelu_tanh", "silu")
_DTYPES = {"f16": torch.float16, "float16": torch.float16, "bf16": torch.bfloat16, "bfloat16": torch.bfloat16,
           "f32": torch.float32, "float32": torch.float32, "f64": torch.float64, "float64": torch.float64,
           "s8": torch.int8, "int8": torch.int8, "s32": torch.int32, "int32": torch.int32,
           "e4m3": torch.float8_e4m3fn, "float8_e4m3fn": torch.float8_e4m3fn,
           "e5m2": torch.float8_e5m2, "float8_e5m2": torch.float8_e5m2}


def matmul(a: Tensor, b: Tensor, *, c: Tensor | None = None, alpha: float = 1.0, beta: float | None = None,
           bias: Tensor | None = None, activation: str | None = None, slope: float = 0.01, out: Tensor | None = None,
           out_dtype: object = None, precision: str | None = None, accumulation: str | None = None,
           scale_a: Tensor | float | None = None, scale_b: Tensor | float | None = None, scale_d: Tensor | None = None,
           config: str | None = None, stream: object = None, context: object = None) -> Tensor:
    """jitgemm.matmul() by torch's operators: with gradients for a, b, c and bias, autocast, and inside torch.compile.

    RuntimeError for `out` where a gradient is required, as of torch's own operators; ValueError for `stream` and
    `context`, which operators do not have. Nor do they have an epilogue of one's own: that is jitgemm.matmul()'s alone.
    """
    if has_torch_function((a, b)) and not (isinstance(a, Tensor) and isinstance(b, Tensor)):  # torch.fx traces it
        given = {"c": c, "beta": beta, "bias": bias, "activation": activation, "out": out, "out_dtype": out_dtype,
                 "precision": precision, "accumulation": accumulation, "scale_a": scale_a, "scale_b": scale_b,
                 "scale_d": scale_d, "config": config, "stream": stream, "context": context}
        return handle_torch_function(jitgemm.matmul, (a, b), a, b, alpha=alpha, slope=slope,
                                     **{name: value for name, value in given.items() if value is not None})
    arguments = _arguments(a, b, c, alpha, beta, bias, activation, slope, out_dtype, precision, accumulation, scale_a,
                           scale_b, scale_d, config, stream, context)
    return torch.ops.jitgemm.matmul(*arguments) if out is None else _by_operators_into(out, arguments)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, activation: str | None = None, slope: float = 0.01,
           out: Tensor | None = None, out_dtype: object = None, precision: str | None = None,
           config: str | None = None, stream: object = None, context: object = None) -> Tensor:
    """activation(x @ weight.T + bias) by torch's operators; x is (..., in), weight (out, in), bias (out,)."""
    return matmul(x, weight.t(), bias=bias, activation=activation, slope=slope, out=out, out_dtype=out_dtype,
                  precision=precision, config=config, stream=stream, context=context)


def _recorded(a, b, c, alpha, beta, bias, activation, slope, out, out_dtype, precision, accumulation, scale_a, scale_b,
              scale_d, config, stream, context, b_is_weight) -> Tensor:
    """What jitgemm.matmul() and linear() call for gradients and autocast, where nothing else looks at operators: these
    cost more."""
    arguments = _arguments(a, b.t() if b_is_weight else b, c, alpha, beta, bias, activation, slope, out_dtype,
                           precision, accumulation, scale_a, scale_b, scale_d, config, stream, context)
    if out is not None:
        return _by_operators_into(out, arguments)
    device = a.device.type
    if device in AUTOCAST and torch.is_autocast_enabled(device):
        arguments = cast_arguments(device, *arguments)
    return record(_compute, *arguments[:4], arguments[4:])


def _prepared(what: str, a, b, c, bias, out, scale_a, scale_b, scale_d, operands) -> tuple:
    """a and b of a product that torch does not see, as autocast has them. RuntimeError where it would need gradients;
    `what` names such a product."""
    tensors = {"a": a, "b": b, "c": c, "bias": bias, "out": out, "scale_a": scale_a, "scale_b": scale_b,
               "scale_d": scale_d}
    if isinstance(operands, dict):
        tensors.update((f"operand {name}", value) for name, value in operands.items())
    for name, tensor in tensors.items():
        if isinstance(tensor, Tensor) and tensor.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(f"{name} requires a gradient, and {what} has none; use "
                               "torch.no_grad(), or call it in forward() and backward() of a torch.autograd.Function")
    narrow = (torch.float32, torch.float16, torch.bfloat16)

    def cast(tensor: object) -> object:
        if not isinstance(tensor, Tensor):
            return tensor
        device = tensor.device.type
        if device in AUTOCAST and torch.is_autocast_enabled(device) and tensor.dtype in narrow:
            return tensor.to(torch.get_autocast_dtype(device))
        return tensor

    return cast(a), cast(b)


def _compute(*arguments) -> Tensor:
    try:
        return _core.compute(*arguments)
    except _core.UnreadableTensor:  # on torch's meta device for instance
        return torch.ops.jitgemm.matmul(*arguments)


def _arguments(a, b, c, alpha, beta, bias, activation, slope, out_dtype, precision, accumulation, scale_a, scale_b,
               scale_d, config, stream, context) -> tuple:
    """An operator's."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        raise TypeError("a and b must both be tensors of torch, by torch.as_tensor() for instance, where there are "
                        "gradients, autocast or torch.compile")
    if stream is not None or context is not None:
        raise ValueError("operators run on torch's current stream by the device's own context; use torch.cuda.stream() "
                         "and leave stream and context away where there are gradients, autocast or torch.compile")
    for name, number in (("alpha", alpha), ("beta", beta), ("slope", slope)):
        if isinstance(number, Tensor):
            raise TypeError(f"{name} is a tensor; pass a number, {name}.item() for instance")
    if isinstance(scale_a, (int, float)):
        alpha, scale_a = alpha * scale_a, None
    if isinstance(scale_b, (int, float)):
        alpha, scale_b = alpha * scale_b, None
    for scale in (scale_a, scale_b, scale_d):
        if scale is not None and (_has_tangent(scale) or (scale.requires_grad and torch.is_grad_enabled())):
            raise RuntimeError("scales have no gradients; detach() them, or multiply by them in operators of their own")
    for name, text in (("activation", activation), ("precision", precision), ("accumulation", accumulation),
                       ("config", config)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} is no string")
    if beta is None:
        beta = 0.0 if c is None else 1.0
    return (a, b, c, bias, float(alpha), float(beta), activation or "none", float(slope),
            None if out_dtype is None else _dtype(out_dtype), precision or "", accumulation or "", scale_a, scale_b,
            scale_d, config or "")


def _has_tangent(tensor: Tensor) -> bool:
    if torch.compiler.is_compiling():
        return False
    if torch._C._functorch.is_gradtrackingtensor(tensor):
        return True
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def _dtype(dtype: object) -> torch.dtype:
    if isinstance(dtype, torch.dtype):
        return dtype
    if isinstance(dtype, str) and dtype in _DTYPES:
        return _DTYPES[dtype]
    return getattr(torch, _core.dtype_name(dtype))


def _by_operators_into(out: Tensor, arguments: tuple) -> Tensor:
    refuse_gradients(out, arguments)
    if not torch.compiler.is_compiling() and (out.is_neg() or forward_ad._current_level >= 0
                                              or torch._C._are_functorch_transforms_active()):
        result = torch.ops.jitgemm.matmul(*arguments[:8], out.dtype, *arguments[9:])
        if result.shape != out.shape:
            raise ValueError(f"out is {tuple(out.shape)}, and the result {tuple(result.shape)}; pass an array of that "
                             "shape")
        out.copy_(result)
    else:
        torch.ops.jitgemm.matmul_out(*arguments, out=out)
    return out


class Linear(torch.nn.Linear):
    """torch.nn.Linear by jitgemm: the same parameters and state, and an activation of the result if one is named.

    activation  relu, leaky_relu (with slope), gelu, gelu_tanh or silu.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: object = None,
                 dtype: torch.dtype | None = None, *, activation: str | None = None, slope: float = 0.01) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        if activation not in _ACTIVATIONS:
            raise ValueError(f'activation is "{activation}"; choose one of {", ".join(map(str, _ACTIVATIONS))}')
        self.activation = activation
        self.slope = slope

    activation: str | None = None
    slope: float = 0.01

    @classmethod
    def from_linear(cls, module: torch.nn.Linear, *, activation: str | None = None, slope: float = 0.01) -> Linear:
        """One that shares the parameters of another, and the activation of one of ours if no other is named.

        TypeError for what is no torch.nn.Linear, or computes its weight.
        """
        if not isinstance(module, torch.nn.Linear):
            raise TypeError(f"from_linear() takes a torch.nn.Linear, and this is a {type(module).__name__}")
        if isinstance(module.weight, torch.nn.parameter.UninitializedParameter):
            raise TypeError("the module's weight has no shape yet; call the module once before")
        if "weight" not in module._parameters:
            raise TypeError("the module's weight is computed from other parameters; remove the parametrization "
                            "first")
        if activation is None and isinstance(module, cls):
            activation, slope = module.activation, module.slope
        made = cls(module.in_features, module.out_features, bias=False, device="meta", dtype=module.weight.dtype,
                   activation=activation, slope=slope)
        made.weight = module.weight
        made.bias = module.bias
        return made.train(module.training)

    def forward(self, input: Tensor) -> Tensor:
        return jitgemm.linear(input, self.weight, self.bias, activation=self.activation, slope=self.slope)

    def extra_repr(self) -> str:
        text = super().extra_repr()
        return text if self.activation is None else f"{text}, activation={self.activation}"


def replace_linear(model: torch.nn.Module, which: Callable[[str, torch.nn.Linear], bool] | None = None) -> list[str]:
    """Makes every torch.nn.Linear of a model one by jitgemm, in place. Returns their names.

    Parameters, hooks and ties stay. Subclasses of torch.nn.Linear, which may mean anything, are left alone.

    which  a function of (name, module) that says which ones.
    """
    names = [name for name, module in model.named_modules()
             if type(module) is torch.nn.Linear and (which is None or which(name, module))]
    for name in names:
        model.get_submodule(name).__class__ = Linear
    return names
