"""Epilogues to begin with, and to copy from: each function gives an `Epilogue`, whose `text` is there to read.

    from jitgemm import epilogues
    d = jitgemm.matmul(a, b, epilogue=epilogues.bias_residual("bf16"), operands={"bias": bias, "residual": x})
    d, outputs = jitgemm.linear(x, weight, epilogue=epilogues.gelu("bf16"))
    gradient = jitgemm.matmul(g, weight2, epilogue=epilogues.dgelu("bf16"), operands={"before": outputs["before"]})

x stands for the product, alpha * (a @ b). Those of pairs, whose names end in "gate", make [..., N / 2] of a product that is
[..., N]: gate and up are its two halves, or with pairs="neighbours" columns 2j and 2j + 1; scale_b is of all N. Types are
those of the operands in memory: "f16", "bf16" or "f32", of arrays that a product of float32 sums may read. Arithmetic is
float32's, within 2^-20 of what is added up, and NaN goes through. Of -inf silu and the gelu by tanh are NaN.
"""

from __future__ import annotations

from functools import cache

from jitgemm import Epilogue

__all__ = ["bias_residual", "clamp", "clamped_silu_gate", "dgelu", "dgelu_tanh", "dropout", "drelu", "dsilu", "gelu",
           "gelu_gate", "leaky_relu", "residual_rstd", "scale", "silu", "silu_gate", "soft_cap"]

_GELU = {"none": "gelu_erf", "tanh": "gelu_tanh"}  # by torch's names, the functions that a text may call


def _epilogue(operands: str, code: str, out: bool = False, helpers: str = "") -> Epilogue:
    return Epilogue(f"{operands}{helpers}"
                    f"__device__ float epilogue(float x, const Args& args, Out&{' out' if out else ''}) {{\n{code}}}\n")


def _gradient(before: str, result: str) -> Epilogue:
    return _epilogue(f"// operand in before matrix {before}\n", f"  return {result};\n")


def _saving(before: str, bias: str | None, function: str) -> Epilogue:
    operands = f"// operand out before matrix {before}\n" + (f"// operand in bias along_n {bias}\n" if bias else "")
    return _epilogue(operands, f"  const float h = x{' + args.bias' if bias else ''};\n  out.before = h;\n"
                               f"  return {function}(h);\n", out=True)


def _function_of_gelu(approximate: str) -> str:
    if approximate not in _GELU:
        raise ValueError(f'approximate is "{approximate}"; choose one of none, tanh')
    return _GELU[approximate]


def _gated(pairs: str, bias: str | None, saved: str | None, function: str, scalars: str = "", helpers: str = "") -> Epilogue:
    if pairs not in ("halves", "neighbours"):
        raise ValueError(f'pairs is "{pairs}"; choose one of halves, neighbours')
    operands = "".join(f"// operand in {name}_bias along_n {bias}\n" for name in ("gate", "up") if bias)
    operands += "".join(f"// operand out {name} matrix {saved}\n" for name in ("gate", "up") if saved)
    add = "".join(f"  {name} += args.{name}_bias;\n" for name in ("gate", "up") if bias)
    save = "".join(f"  out.{name} = {name};\n" for name in ("gate", "up") if saved)
    return Epilogue(f"// pairs {pairs}\n{scalars}{operands}{helpers}"
                    "__device__ float epilogue(float gate, float up, const Args& args, Out& out) {\n"
                    f"{add}{save}{function}}}\n")


@cache
def bias_residual(residual: str = "bf16", bias: str | None = None) -> Epilogue:
    """x + bias + residual: `bias` a value a column, `residual` a matrix; both of one type unless said otherwise."""
    return _epilogue(f"// operand in bias along_n {bias or residual}\n// operand in residual matrix {residual}\n",
                     "  return x + args.bias + args.residual;\n")


@cache
def residual_rstd(residual: str = "bf16", rstd: str = "f32") -> Epilogue:
    """x * rstd + residual: `rstd` a value a row, as a norm before the product leaves it; `residual` a matrix."""
    return _epilogue(f"// operand in rstd along_m {rstd}\n// operand in residual matrix {residual}\n",
                     "  return x * args.rstd + args.residual;\n")


@cache
def scale(factors: str = "f32") -> Epilogue:
    """x * rows * columns: `rows` a value a row and `columns` a value a column, of quantised operands say."""
    return _epilogue(f"// operand in rows along_m {factors}\n// operand in columns along_n {factors}\n",
                     "  return x * args.rows * args.columns;\n")


@cache
def gelu(before: str = "bf16", *, approximate: str = "none", bias: str | None = None) -> Epilogue:
    """gelu(h) of h = x, or x + bias where that has a type; h itself is the output `before`, for dgelu().

    approximate: "none" or "tanh", as torch has it; dgelu_tanh() is of the latter.
    """
    return _saving(before, bias, _function_of_gelu(approximate))


@cache
def silu(before: str = "bf16", *, bias: str | None = None) -> Epilogue:
    """silu(h) of h = x, or x + bias where that has a type; h itself is the output `before`, for dsilu()."""
    return _saving(before, bias, "silu")


@cache
def silu_gate(pairs: str = "halves", *, bias: str | None = None, saved: str | None = None) -> Epilogue:
    """silu(gate) * up, a layer's SwiGLU.

    bias: a type, of `gate_bias` and `up_bias`, a value a column of the result each, added first. saved: a type, of the
    outputs `gate` and `up`, which a gradient needs.
    """
    return _gated(pairs, bias, saved, "  return silu(gate) * up;\n")


@cache
def gelu_gate(pairs: str = "halves", *, approximate: str = "tanh", bias: str | None = None,
              saved: str | None = None) -> Epilogue:
    """gelu(gate) * up, a layer's GEGLU; approximate: "tanh" or "none", the rest as silu_gate()."""
    return _gated(pairs, bias, saved, f"  return {_function_of_gelu(approximate)}(gate) * up;\n")


@cache
def clamped_silu_gate(pairs: str = "neighbours", *, bias: str | None = None, saved: str | None = None) -> Epilogue:
    """(up + 1) * gate * logistic(alpha * gate) of a gate of at most `limit` and an up within -limit and limit.

    `limit` and `alpha` are scalars: gpt-oss has 7 and 1.702, and its columns in turn. The rest as silu_gate(); what is
    saved is not clamped.
    """
    return _gated(pairs, bias, saved,
                  "  const float g = gate > args.limit ? args.limit : gate;\n"
                  "  const float low = up < -args.limit ? -args.limit : up, u = low > args.limit ? args.limit : low;\n"
                  "  return (u + 1.0f) * (g * logistic(args.alpha * g));\n",
                  "// operand in limit scalar\n// operand in alpha scalar\n",
                  "__device__ float logistic(float x) { return sigmoid(-float(log2_e) * x); }\n")


@cache
def drelu(before: str = "bf16") -> Epilogue:
    """0 where the matrix `before` is 0 or less, else x, also where that is NaN: the gradient through relu.

    The result of relu will do for `before`.
    """
    return _gradient(before, "args.before <= 0 ? 0.0f : x")


@cache
def dgelu(before: str = "bf16") -> Epilogue:
    """x * gelu'(before), of the gelu by erf; `before` is a matrix."""
    return _gradient(before, "x * dgelu_erf(args.before)")


@cache
def dgelu_tanh(before: str = "bf16") -> Epilogue:
    """x * gelu'(before), of the gelu by tanh; `before` is a matrix."""
    return _gradient(before, "x * dgelu_tanh(args.before)")


@cache
def dsilu(before: str = "bf16") -> Epilogue:
    """x * silu'(before); `before` is a matrix."""
    return _gradient(before, "x * dsilu(args.before)")


@cache
def dropout() -> Epilogue:
    """x / (1 - p) with probability 1 - p, else 0; `seed` and `p` are scalars.

    What is dropped is a function of seed, row, column and batch alone, the same on every device and by every kernel:
    where the gradient passes, the same call gives the same mask. A seed is a whole number from 0 to 2^24 - 1, since
    scalars are float32's; p, from 0 to 1, counts in steps of 2^-24. Others are not refused, and their masks mean nothing.
    """
    return _epilogue(
        "// operand in seed scalar\n// operand in p scalar\n",
        "  const word seed = word(args.seed), batch = word(args.batch), row = word(args.row);\n"
        "  const word first = mixed(row + mixed(seed + batch * 0x9e3779b1u));\n"
        "  const word second = mixed(row ^ mixed(batch - seed * 0x7feb352eu));\n"
        "  word z = (word(args.column) + first) * 0x9e3779b1u;\n"
        "  z = ((z ^ (z >> 15)) + second) * 0x85ebca6bu;\n"
        "  z = (z ^ (z >> 13)) * 0xc2b2ae35u;\n"
        "  const float kept = x * (1.0f / (1.0f - args.p));\n"
        "  return int(z >> 8) < int(args.p * 16777216.0f) ? 0.0f : kept;  // of 24 bits\n",
        helpers="using word = unsigned;\n"
                "__device__ word mixed(word z) {  // one to one, and each bit of z changes about half of the result's\n"
                "  z = (z ^ (z >> 16)) * 0x7feb352du;\n"
                "  z = (z ^ (z >> 15)) * 0x846ca68bu;\n"
                "  return z ^ (z >> 16);\n"
                "}\n")


@cache
def soft_cap() -> Epilogue:
    """cap * tanh(x / cap); `cap` is a scalar."""
    return _epilogue("// operand in cap scalar\n", "  return args.cap * tanhf(x * (1.0f / args.cap));\n")


@cache
def clamp() -> Epilogue:
    """x, at least `low` and at most `high`, which are scalars.

    One that is NaN is no limit, and where `low` is above `high` the result is at most `high`.
    """
    return _epilogue("// operand in low scalar\n// operand in high scalar\n",
                     "  const float least = x < args.low ? args.low : x;\n"
                     "  return least > args.high ? args.high : least;\n")


@cache
def leaky_relu() -> Epilogue:
    """x, times `slope` below 0; `slope` is a scalar, so that one kernel serves all."""
    return _epilogue("// operand in slope scalar\n", "  return x < 0 ? x * args.slope : x;\n")
