"""Scales of blocks of 128 of k, of NumPy's arrays and torch's, on the emulator, against float64."""
import importlib.util

import jitgemm
import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes", reason="8-bit floats of NumPy come with ml_dtypes")

rng = np.random.default_rng()
TORCH = importlib.util.find_spec("torch") is not None
LIBRARIES = ["numpy", pytest.param("torch", marks=pytest.mark.skipif(not TORCH, reason="torch is not installed"))]
K = (1, 128, 129, 400)


def blocks(extent):
    return -(-extent // 128)


def exact(array):
    return np.asarray(array).astype(np.float64)


def operand(rows, k):
    return rng.standard_normal((rows, k)).astype(ml_dtypes.float8_e4m3fn)


def scales(rows, k_blocks):
    """No two alike, far from 1: one that is missed, or of the wrong block, is far out of the bound."""
    return (np.exp2(rng.uniform(-3, 3, (rows, k_blocks))) * rng.choice([-1, 1], (rows, k_blocks))).astype(np.float32)


def scaled(values, factors):
    """A matrix (rows, K) in float64, times the scales of its blocks."""
    of_rows = factors if factors.shape[0] == values.shape[0] else np.repeat(factors, 128, 0)[:values.shape[0]]
    return exact(values) * np.repeat(exact(of_rows), 128, 1)[:, :values.shape[1]]


def by_columns(factors):
    """As DeepGEMM has them: 128 of k after 128 of k, each time rows rounded up to a multiple of 4."""
    rows, k_blocks = factors.shape
    memory = np.full((k_blocks, (rows + 3) // 4 * 4), np.nan, np.float32)
    memory[:, :rows] = factors.T
    return memory[:, :rows].T


def assert_close(d, left, right):
    expected, magnitude = left @ right.T, np.abs(left) @ np.abs(right).T
    d = exact(d)
    assert d.shape == expected.shape and not np.isnan(d).any()
    # Of what tensor cores add up, 13 bits after the leading one are kept: Accumulation::promoted.
    assert (np.abs(d - expected) <= 2e-3 * magnitude + 1e-30).all()


def of(library, array):
    """The same memory layout in another library."""
    if library == "numpy":
        return array
    import torch

    if array.dtype == ml_dtypes.float8_e4m3fn:
        return torch.from_numpy(array.view(np.uint8)).view(torch.float8_e4m3fn)
    memory = torch.from_numpy(array.base if array.base is not None and array.base.ndim == 2 else array)
    return torch.as_strided(memory, array.shape, [stride // array.itemsize for stride in array.strides])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("k", K)
@pytest.mark.parametrize("m, n", [(1, 129), (130, 1), (37, 200), (300, 140)])
def test_kinds_follow_from_shapes(library, m, n, k):
    a, weight = operand(m, k), operand(n, k)
    x, w = of(library, a), of(library, weight)
    rows_of_b = {"1x128": n, "128x128": blocks(n)}
    for kind_a, kind_b in (("1x128", "128x128"), ("1x128", "1x128"), ("128x128", "128x128")):
        of_a = scales(m if kind_a == "1x128" else blocks(m), blocks(k))
        of_b = scales(rows_of_b[kind_b], blocks(k))
        left, right = scaled(a, of_a), scaled(weight, of_b)
        scale_a = by_columns(of_a) if kind_a == "1x128" else of_a
        scale_b = by_columns(of_b) if kind_b == "1x128" else of_b
        arguments = {"scale_a": of(library, scale_a), "scale_b": of(library, scale_b).T, "out_dtype": "f32"}
        assert_close(jitgemm.matmul(x, w.T, **arguments), left, right)
        product = jitgemm.Matmul(x, w.T, **arguments)
        if k > 128:
            assert m == 1 or f"scaling_a=block_{kind_a}" in str(product.problem)
            assert n == 1 or f"scaling_b=block_{kind_b}" in str(product.problem)
        assert_close(product(), left, right)
        other = scales(*of_a.shape)
        again = by_columns(other) if kind_a == "1x128" else other
        assert_close(product(scale_a=of(library, again)), scaled(a, other), right)


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
@pytest.mark.parametrize("width", [128, 136, 65])
def test_pairs_of_columns_have_each_its_own(pairs, width):
    m, n, k = 37, 2 * width, 400
    a, weight = operand(m, k), operand(n, k)
    difference = jitgemm.Epilogue(f"// pairs {pairs}\n__device__ float epilogue(float gate, float up, const Args&, Out&) "
                                  "{ return 2 * gate - up; }")
    gates, ups = (slice(0, width), slice(width, n)) if pairs == "halves" else (slice(0, n, 2), slice(1, n, 2))
    row, column = scales(m, 1), scales(n, 1)
    for rows_of_b in (n, blocks(n), None):
        if rows_of_b:
            of_a, of_b = scales(m, blocks(k)), scales(rows_of_b, blocks(k))
            left, right = scaled(a, of_a), scaled(weight, of_b)
            given = by_columns(of_a), by_columns(of_b).T if rows_of_b == n else of_b.T
        else:
            left, right, given = exact(a) * row, exact(weight) * column, (row, column.T)
        d = jitgemm.matmul(a, weight.T, epilogue=difference, scale_a=given[0], scale_b=given[1], accumulation="promoted",
                           out_dtype="f32")
        assert d.shape == (m, width)
        expected = left @ (2 * right[gates] - right[ups]).T
        magnitude = np.abs(left) @ (2 * np.abs(right[gates]) + np.abs(right[ups])).T
        assert (np.abs(exact(d) - expected) <= 2e-3 * magnitude + 1e-30).all()


def test_a_result_by_columns_swaps_them():
    m, n, k = 40, 150, 300
    a, weight = operand(m, k), operand(n, k)
    of_a, of_b = scales(m, blocks(k)), scales(blocks(n), blocks(k))
    out = np.full((n, m), np.nan, np.float32).T
    jitgemm.matmul(a, weight.T, scale_a=by_columns(of_a), scale_b=of_b.T, out=out)
    assert_close(out, scaled(a, of_a), scaled(weight, of_b))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("order", ["C", "F", "apart"])
def test_block_scales_makes_them_readable(library, order):
    m, n, k = 70, 260, 390
    a, weight = operand(m, k), operand(n, k)
    for rows_b in (n, blocks(n)):
        of_a, of_b = scales(m, blocks(k)), scales(rows_b, blocks(k))

        def laid(factors):
            if order == "apart":
                wide = np.full((2 * factors.shape[0], 3 * factors.shape[1]), np.nan, np.float32)
                wide[::2, ::3] = factors
                factors = wide[::2, ::3]
            given = of(library, factors if order != "F" else np.asfortranarray(factors))
            return given if order != "F" or library == "numpy" else given.t().contiguous().t()

        x, w = of(library, a), of(library, weight)
        scale_a, scale_b = jitgemm.block_scales(laid(of_a), x), jitgemm.block_scales(laid(of_b), w).T
        assert (exact(scale_a) == of_a).all() and (exact(scale_b) == of_b.T).all()
        assert_close(jitgemm.matmul(x, w.T, scale_a=scale_a, scale_b=scale_b, out_dtype="f32"), scaled(a, of_a),
                     scaled(weight, of_b))
        assert jitgemm.block_scales(scale_a, x) is scale_a
        # A b that lies along n has its scales as they are, too.
        scale_b = jitgemm.block_scales(laid(of_b), w).T
        rows = weight.T.copy() if library == "numpy" else w.t().contiguous()
        assert_close(jitgemm.matmul(x, rows, scale_a=scale_a, scale_b=scale_b, out_dtype="f32"), scaled(a, of_a),
                     scaled(weight, of_b))


@pytest.mark.skipif(not TORCH, reason="torch is not installed")
def test_powers_of_two_in_eight_bits():
    import torch

    a, b = of("torch", operand(20, 256)), of("torch", operand(130, 256))
    of_a, of_b = torch.rand(20, 2).to(torch.float8_e8m0fnu), torch.rand(2, 2).to(torch.float8_e8m0fnu)
    d = jitgemm.matmul(a, b.t(), scale_a=jitgemm.block_scales(of_a, a), scale_b=jitgemm.block_scales(of_b, b).t(),
                       out_dtype="f32")
    assert_close(d, scaled(a.float().numpy(), of_a.float().numpy()), scaled(b.float().numpy(), of_b.float().numpy()))


@pytest.mark.skipif(not TORCH, reason="torch is not installed")
def test_inside_torch_compile():
    import torch

    a, b = of("torch", operand(20, 256)), of("torch", operand(130, 256))
    of_a, of_b = scales(20, 2), scales(2, 2)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def product(a, b, scale_a, scale_b):
        return jitgemm.matmul(a, b.t(), scale_a=scale_a * 2, scale_b=scale_b.t(), out_dtype="f32")

    d = product(a, b, of("torch", by_columns(of_a)), of("torch", of_b))
    assert_close(d, 2 * scaled(a.float().numpy(), of_a), scaled(b.float().numpy(), of_b))


@pytest.mark.gpu
def test_inside_a_graph():
    torch = pytest.importorskip("torch", reason="torch is not installed")

    m, n, k = 37, 200, 400
    a, weight = operand(m, k), operand(n, k)
    of_a, of_b = scales(m, blocks(k)), scales(blocks(n), blocks(k))
    x, w = of("torch", a).cuda(), of("torch", weight).cuda()
    scale_a = jitgemm.block_scales(of("torch", of_a).cuda(), x)
    scale_b = jitgemm.block_scales(of("torch", of_b).cuda(), w).t()
    out = torch.full((m, n), float("nan"), device="cuda")
    jitgemm.matmul(x, w.t(), scale_a=scale_a, scale_b=scale_b, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        jitgemm.matmul(x, w.t(), scale_a=scale_a, scale_b=scale_b, out=out)
    out.fill_(float("nan"))
    scale_a.mul_(2)
    graph.replay()
    assert_close(out.cpu().numpy(), 2 * scaled(a, of_a), scaled(weight, of_b))


A, B = (64, 300), (300, 200)  # 3 times 128 of k; 2 times 128 columns


@pytest.mark.parametrize("scale_a, scale_b, kind, message", [
    ((64, 3), None, ValueError, r"scale_b no array; both operands have such scales or none: pass scale_b as "
                                r"\(3, 200\) or \(3, 2\)"),
    ((64, 3), (200,), ValueError, r"scale_a is \(64, 3\), one for each 128 of k, and scale_b \(200,\)"),
    (None, (3, 2), ValueError, r"scale_a no array; .* pass scale_a as \(64, 3\) or \(1, 3\)"),
    ((64, 1), (3, 2), ValueError, r"and scale_a \(64, 1\); both"),
    ((64, 4), (3, 2), TypeError, r"scale_a must be one .* here \(64, 3\) or \(1, 3\); it is \(64, 4\)"),
    ((1, 3), (2, 3), TypeError, r"scale_b must be .* here \(3, 200\) or \(3, 2\); it is \(2, 3\). The scales of a weight"),
    ((64, 3, 1), (3, 2), TypeError, "scale_a must be one"),
    ((64, 3), (3, 200), ValueError, r"scale_a is f32 \(64, 3\) with strides \(3, 1\), where kernels read strides "
                                    r"\(1, 64\); pass jitgemm.block_scales\(scale_a, a\)"),
    ((1, 3), (3, 2), ValueError, r"strides \(2, 1\), where kernels read strides \(1, 3\); pass "
                                 r"jitgemm.block_scales\(scale_b.T, b.T\).T"),
])
def test_what_does_not_go_together(scale_a, scale_b, kind, message):
    a, b = operand(*A), operand(*B)
    made = {name: np.ones(shape, np.float32)
            for name, shape in (("scale_a", scale_a), ("scale_b", scale_b)) if shape is not None}
    with pytest.raises(kind, match=message):
        jitgemm.matmul(a, b, **made)


def test_what_else_is_refused():
    a, b = operand(*A), operand(*B)
    good = {"scale_a": np.ones((1, 3), np.float32), "scale_b": np.ones((2, 3), np.float32).T}
    assert jitgemm.matmul(a, b, **good).shape == (64, 200)
    with pytest.raises(TypeError, match="scale_a must be float32"):
        jitgemm.matmul(a, b, scale_a=np.ones((1, 3)), scale_b=good["scale_b"])
    with pytest.raises(ValueError, match="use a and b of e4m3 or e5m2"):
        jitgemm.matmul(a.astype(np.float32), b.astype(np.float32), **good)
    with pytest.raises(TypeError, match="where a and b are matrices"):
        jitgemm.matmul(a[None], b, **good)
    with pytest.raises(TypeError, match=r"scale_a is \(64, 3\), and scales of int8 are one float32 or.* row of a"):
        jitgemm.matmul(np.ones(A, "int8"), np.ones(B, "int8"), out_dtype="f32", scale_a=np.ones((64, 3), np.float32))
    product = jitgemm.Matmul(a, b, **good)
    with pytest.raises(ValueError, match="make another one"):
        product(scale_b=np.ones((3, 200), np.float32))
    with pytest.raises(ValueError, match=r"scales are \(3, 2\), and of an operand \(64, 300\) they are \(64, 3\) or"):
        jitgemm.block_scales(np.ones((3, 2), np.float32), a)
    with pytest.raises(ValueError, match="two dimensions, or of three with groups; they have 1 and 2"):
        jitgemm.block_scales(np.ones(3, np.float32), a)
    with pytest.raises(TypeError, match="arrays of torch, NumPy and CuPy"):
        jitgemm.block_scales(memoryview(np.ones((64, 3), np.float32)), a)
