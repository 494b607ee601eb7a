"""What is wrong with operands, or with an epilogue, is one clear error."""
import jitgemm
import numpy as np
import pytest
from epilogue_cases import EVERYTHING, assert_close, check_everything, eighths, exact, normal
from jitgemm import epilogues


@pytest.mark.parametrize("change, error, message", [
    ({"residual": None}, ValueError, "operand residual is missing; pass operands={\"residual\": an array}"),
    ({"limit": None}, ValueError, "operand limit is missing; pass operands={\"limit\": a number}"),
    ({"limit": "1"}, TypeError, "operand limit is no number"),
    ({"limit": np.ones(3, "f4")}, TypeError, "operand limit is no number"),
    ({"residual": 2.0}, TypeError, "operand residual is a number, and described as matrix; pass an array"),
    ({"residual": [[1.0]]}, TypeError, "operand residual is a builtins.list"),
    ({"residual": np.ones((5, 9), "f2")}, TypeError, "operand residual is of f16, and described as f32; convert it"),
    ({"residual": np.ones((9, 5), "f4")}, ValueError, r"operand residual is \(9, 5\), a matrix, and the result \(5, 9\)"),
    ({"residual": np.ones((1, 9), "f4")}, ValueError, r"operand residual is \(1, 9\), a matrix, and the result \(5, 9\)"),
    ({"residual": np.ones((2, 5, 9), "f4")}, ValueError, "pass one of that shape"),
    ({"residual": np.ones((9, 5), "f4").T}, ValueError, "do not lie one after the other along the last dimension"),
    ({"residual": np.ones((5, 18), "f4")[:, ::2]}, ValueError, "do not lie one after the other along the last dimension"),
    ({"residual": np.ones((5, 9), "f4")[::-1]}, ValueError, r"its rows do not lie .* backwards or on one another, strides \(-9, 1\)"),
    ({"columns": np.ones(5, "f2")}, ValueError, r"columns is \(5,\), a value a column, and the result \(5, 9\): pass one of shape \(9,\)"),
    ({"columns": np.ones((9, 1), "f2")}, ValueError, r"or \(..., 1, 9\) whose leading"),
    ({"columns": np.ones(18, "f2")[::2]}, ValueError, "operand columns is .9,., and its elements do not lie one after the"),
    ({"rows": np.ones(9, "f4")}, ValueError, r"rows is \(9,\), a value a row, and the result \(5, 9\): pass one of shape \(5,\)"),
    ({"rows": np.ones((2, 5, 1), "f4")}, ValueError, "leading dimensions are those of the batch"),
    ({"before": np.ones((5, 9), "f2")}, TypeError, "operand before is of f16, and described as f32"),
    ({"before": np.ones((1, 9), "f4")}, ValueError, "an output has the result's shape"),
    ({"before": np.broadcast_to(np.ones((1, 9), "f4"), (5, 9))}, ValueError, "operand before is read-only"),
    ({"before": np.lib.stride_tricks.as_strided(np.ones(90, "f4"), (5, 9), (0, 4))}, ValueError, "do not lie|are one in memory"),
    ({"others": 1}, ValueError, "operands has \"others\", and the epilogue's are residual, columns, rows, limit, before"),
    ({1: 1}, ValueError, "operands has \"1\""),
])
def test_every_wrong_operand_is_one_clear_error(change, error, message):
    a, b = eighths((5, 7), "f4"), eighths((7, 9), "f4")
    operands = {"residual": normal((5, 9), "f4"), "columns": normal(9, "f2"), "rows": normal(5, "f4"), "limit": 1}
    with pytest.raises(error, match=message) as caught:
        jitgemm.matmul(a, b, epilogue=EVERYTHING, operands={**operands, **change})
    assert "\n" not in str(caught.value)
    with pytest.raises(error, match=message):
        jitgemm.Matmul(a, b, epilogue=EVERYTHING, operands={**operands, **change})
    check_everything(a, b, operands, operands["rows"].reshape(5, 1))  # all is as it was


def test_every_other_mistake_is_one_clear_error():
    a, b = eighths((5, 7), "f4"), eighths((7, 9), "f4")
    operands = {"residual": normal((5, 9), "f4"), "columns": normal(9, "f2"), "rows": normal(5, "f4"), "limit": 1}
    x = np.empty((5, 9), np.float32)
    for keywords, error, message in [
            ({"epilogue": 3}, TypeError, "epilogue is no jitgemm.Epilogue; pass one, or its text"),
            ({"epilogue": EVERYTHING, "operands": [1]}, TypeError, "operands is no dict"),
            ({"operands": operands}, ValueError, "operands are an epilogue's, which is not there; pass epilogue"),
            ({"epilogue": EVERYTHING, "operands": operands, "bias": normal(9, "f4")}, ValueError, "bias is given beside"),
            ({"epilogue": EVERYTHING, "operands": operands, "c": x}, ValueError, "beta is given beside"),
            ({"epilogue": EVERYTHING, "operands": operands, "activation": "relu"}, ValueError, "activation is given beside"),
            ({"epilogue": EVERYTHING, "operands": operands, "out": np.empty((9, 5), "f4").T}, ValueError, "with an epilogue its rows"),
            ({"epilogue": EVERYTHING, "operands": {**operands, "before": x}, "out": x}, ValueError, "before overlaps D"),
            ({"epilogue": "__device__ float wrong(float x) { return x; }"}, ValueError, "there is no function \"epilogue\""),
            ({"epilogue": "// operand in x\n"}, ValueError, "line 1: \"\" is no shape")]:
        with pytest.raises(error, match=message) as caught:
            jitgemm.matmul(a, b, **keywords)
        assert "\n" not in str(caught.value)
    with pytest.raises(RuntimeError, match="does not compile") as caught:
        jitgemm.matmul(a, b, epilogue="__device__ float epilogue(float x, const Args&, Out&) { return misspelt; }")
    assert caught.value.code == "compile_failed" and "misspelt" in caught.value.log
    code = "__device__ float epilogue(float x, const Args&, Out&) { return x; }"
    for line, text in ((2, f"\n// operand in limit scalar\n{code}"),
                       (3, f"// operand in low scalar\n\n// operand in limit scalar\n{code}")):
        with pytest.raises(ValueError, match=f"line {line}: operands come first"):
            jitgemm.Epilogue(text)
    assert len(jitgemm.Epilogue(f"  //operand in limit scalar\n{code}").operands) == 1
    assert jitgemm.Epilogue(f"// operands: none\n{code}").operands == []
    with pytest.raises(ValueError, match='approximate is "erf"; choose one of none, tanh'):
        epilogues.gelu(approximate="erf")


def test_operands_of_a_batch_that_no_stride_describes_may_not_overlap():
    a, b = eighths((2, 1, 5, 8), "f4"), eighths((3, 8, 7), "f4")
    out, given = np.empty((2, 3, 5, 7), np.float32), {"bias": np.ones(7, np.float32)}
    bias_residual = epilogues.bias_residual("f32")
    with pytest.raises(ValueError, match="operand residual and out overlap in memory"):
        jitgemm.matmul(a, b, out=out, epilogue=bias_residual, operands={**given, "residual": out[0, 0]})
    out[:] = 1
    jitgemm.matmul(a, b, out=out, epilogue=bias_residual, operands={**given, "residual": out})
    assert_close(out, exact(a) @ exact(b) + 2, "f32", 10)
    before = np.empty((2, 3, 5, 7), np.float32)
    with pytest.raises(ValueError, match="operand before and out overlap"):
        jitgemm.matmul(a, b, out=before, epilogue=epilogues.gelu("f32"), operands={"before": before})
    beside = np.empty((2, 3, 5, 20), np.float32)
    jitgemm.matmul(a, b, out=beside[..., :7], epilogue=epilogues.gelu("f32"), operands={"before": beside[..., 7:14]})
    assert_close(beside[..., 7:14], exact(a) @ exact(b), "f32", 10)
    with pytest.raises(ValueError, match="operand before and out overlap"):
        jitgemm.matmul(a, b, out=beside[..., :7], epilogue=epilogues.gelu("f32"), operands={"before": beside[..., 6:13]})
    # Windows of four columns, each one further, reach six.
    rows = np.ones((2, 12, 16), np.float32)
    windows = np.lib.stride_tricks.as_strided(rows, (2, 3, 4, 4), (768, 4, 64, 4))
    output = np.lib.stride_tricks.as_strided(rows[0, 0, 5:], (2, 3, 4, 2), (768, 256, 64, 4))
    with pytest.raises(ValueError, match="operand before and a overlap"):
        jitgemm.matmul(windows, np.ones((2, 3, 4, 2), np.float32), epilogue=epilogues.gelu("f32"), operands={"before": output})
    with pytest.raises(ValueError, match="some of its elements are one in memory"):
        jitgemm.matmul(a, b, epilogue=epilogues.gelu("f32"),
                       operands={"before": np.lib.stride_tricks.as_strided(before, before.shape, (0, 140, 28, 4))})
