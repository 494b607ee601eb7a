"""Products of torch's tensors. On CPU tensors, by the emulator."""
import subprocess
import sys
import textwrap
import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import jitgemm  # noqa: E402
import jitgemm.torch  # noqa: E402
from torch_tensors import DEVICES, close  # noqa: E402


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 4e-3), (torch.bfloat16, 3e-2), (torch.float32, 1e-5),
                                              (torch.float64, 1e-12), (torch.int8, 0), (torch.float8_e4m3fn, 3e-2),
                                              (torch.float8_e5m2, 3e-2)])
def test_types(device, dtype, tolerance):
    a = (torch.randn(33, 47, device=device) * (9 if dtype == torch.int8 else 1)).to(dtype)
    b = (torch.randn(29, 47, device=device) * (9 if dtype == torch.int8 else 1)).to(dtype).t()
    expected = a.double() @ b.double()
    d = jitgemm.matmul(a, b)
    assert d.dtype == {torch.int8: torch.int32, torch.float8_e4m3fn: torch.bfloat16,
                       torch.float8_e5m2: torch.bfloat16}.get(dtype, dtype)
    assert d.device == a.device
    # Tensor cores add products of 8 bits with 13 bits after the leading one: Accumulation::fast.
    sums = 8e-3 if dtype in (torch.float8_e4m3fn, torch.float8_e5m2) else 1e-6 if tolerance > 0 else 0
    scale = a.double().abs() @ b.double().abs()
    assert ((d.double() - expected).abs() <= tolerance * expected.abs() + sums * scale).all()
    out = torch.full_like(d, float("nan") if d.is_floating_point() else -1)
    assert jitgemm.matmul(a, b, out=out) is out and torch.equal(out, d)


def test_float32_follows_torch():
    # 1 + 2^-12 is a float32, and becomes 1 as a tf32.
    a, b = torch.full((16, 32), 1 + 2.0**-12), torch.ones(32, 16)
    assert (jitgemm.matmul(a, b) == 32 + 2.0**-7).all()
    assert (jitgemm.matmul(a, b, precision="tf32") == 32).all()
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert (jitgemm.matmul(a, b) == 32).all()
        assert (jitgemm.matmul(a, b, precision="ieee") == 32 + 2.0**-7).all()
    finally:
        torch.set_float32_matmul_precision(before)


def test_importing_jitgemm_imports_no_torch():
    program = "import sys, jitgemm\nassert not [name for name in sys.modules if name.split('.')[0] in ('torch', 'numpy')]"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    a, b, bias = torch.randn(4, 8, requires_grad=True), torch.randn(8, 4), torch.randn(4)
    with torch.autocast("cpu", dtype=dtype):
        y = jitgemm.matmul(a, b, bias=bias)
        assert y.dtype == dtype == (a @ b).dtype
        assert jitgemm.matmul(a.double(), b.double()).dtype == torch.float64
        out = torch.empty(4, 4, dtype=dtype)
        with torch.no_grad():
            jitgemm.matmul(a, b, bias=bias, out=out)
        assert torch.equal(out, y)
    y.sum().backward()
    assert a.grad.dtype == torch.float32
    assert close(y, a @ b + bias, 0.1)


def test_autocast_as_torch_has_it():
    a, b, bias = torch.randn(4, 8, requires_grad=True), torch.randn(8, 4, requires_grad=True), torch.randn(4)
    with torch.autocast("cuda", dtype=torch.float16, enabled=torch.cuda.is_available()):  # of another device
        assert jitgemm.matmul(a, b).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = jitgemm.matmul(a, b, c=torch.randn(4, 4), bias=bias, activation="gelu")
        assert y.dtype == torch.bfloat16
        assert jitgemm.matmul(a, b, out_dtype=torch.float32, bias=bias).dtype == torch.float32
        narrow = torch.randn(16, 32).to(torch.float8_e4m3fn)
        assert jitgemm.matmul(narrow, narrow.t()).dtype == torch.bfloat16
        assert jitgemm.matmul(narrow.to(torch.int8), narrow.t().to(torch.int8)).dtype == torch.int32
        with torch.autocast("cpu", enabled=False):
            assert jitgemm.matmul(a, b).dtype == torch.float32
        layer = jitgemm.torch.Linear(8, 4)
        y = y + layer(a)
        assert torch.ops.jitgemm.matmul(a, b, None, None, 1.0, 0.0, "none", 0.01, None, "", "", None, None, None,
                                        "").dtype == torch.bfloat16
    y.float().square().sum().backward()
    assert a.grad.dtype == b.grad.dtype == layer.weight.grad.dtype == layer.bias.grad.dtype == torch.float32


def test_views_that_mean_more_than_their_memory():
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    z = torch.randn(4, 8, dtype=torch.complex64)
    negative = z.conj().imag
    assert negative.is_neg() and close(jitgemm.matmul(negative, b), negative @ b)
    assert close(jitgemm.matmul(a.expand(3, 4, 8), b), a.expand(3, 4, 8) @ b)
    assert close(jitgemm.matmul(a[:, ::2], b[::2]), a[:, ::2] @ b[::2])
    assert close(jitgemm.matmul(a[:1].expand(4, 8), b), a[:1].expand(4, 8) @ b)
    out = torch.zeros(4, 4, dtype=torch.complex64).conj().imag
    assert jitgemm.matmul(a, b, out=out) is out and out.is_neg() and close(out, a @ b)
    with pytest.raises(TypeError, match="a is to be negated when it is read; pass its resolve_neg"):
        jitgemm.Matmul(negative, b)
    with pytest.raises(TypeError, match="a is to be negated when it is read; pass its resolve_neg"):
        row = torch.randn(1, 8, dtype=torch.complex64)
        jitgemm.Matmul(row.imag, b)(row.conj().imag)
    assert close(jitgemm.matmul(torch._efficientzerotensor(4, 8), b), torch.zeros(4, 4))

    class Doubled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            return super().__torch_function__(function, types, arguments, keywords or {})

    result = jitgemm.matmul(a.as_subclass(Doubled), b)
    assert close(result, a @ b)


def test_each_thread_has_its_own_modes():
    a, b = torch.randn(4, 8, requires_grad=True), torch.randn(8, 5)
    results = {}

    def work(index):
        with torch.set_grad_enabled(index % 2 == 0), torch.autocast("cpu", dtype=torch.bfloat16, enabled=index >= 2):
            for _ in range(5):
                results[index] = jitgemm.matmul(a, b)

    with torch.no_grad(), torch.inference_mode():
        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [results[index].requires_grad for index in range(4)] == [True, False, True, False]
    assert [results[index].dtype for index in range(4)] == 2 * [torch.float32] + 2 * [torch.bfloat16]


def test_tensors_without_memory():
    a, b = torch.randn(4, 8), torch.randn(8, 5)
    y = jitgemm.matmul(a.to("meta"), b.to("meta"), bias=torch.empty(5, device="meta"))
    assert y.is_meta and y.shape == (4, 5)
    assert jitgemm.torch.Linear(8, 5, device="meta")(a.to("meta")).is_meta
    emptied = torch.randn(4, 8)
    emptied.untyped_storage().resize_(0)
    with pytest.raises(TypeError, match="a has no memory"):
        jitgemm.matmul(emptied, b)
    for tensor, message in [(a.to_sparse(), "a is a tensor of layout torch.sparse_coo on cpu"),
                            (a.to_sparse_csr(), "a is a tensor of layout torch.sparse_csr"),
                            (a.bool(), "a has elements of torch.bool"), (a.to(torch.complex64), "torch.complex64"),
                            (a.to(torch.uint8), "torch.uint8")]:
        with pytest.raises(TypeError, match=message) as caught:
            jitgemm.matmul(tensor, b)
        assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match="activation is no string"):
        jitgemm.matmul(a.requires_grad_(), b, activation=3)
    with pytest.raises(TypeError, match="a and b must both be tensors of torch"):
        jitgemm.matmul(a.requires_grad_(), b.numpy())


def test_fake_tensors_are_checked_as_real_ones():
    a, b, c = torch.randn(4, 8), torch.randn(8, 5), torch.randn(4, 5)
    wrong = [dict(a=a[:, :7]), dict(b=b.double()), dict(c=c[:3]), dict(c=c.half()), dict(bias=torch.randn(4)),
             dict(bias=torch.randn(5).half()), dict(bias=torch.randn(1, 4)), dict(out=torch.empty(4, 4)),
             dict(a=a[0, 0])]
    for change in wrong:
        arguments = {"a": a, "b": b, **change}
        messages = []
        for device in ("cpu", "meta"):
            moved = {name: tensor.to(device) for name, tensor in arguments.items()}
            with pytest.raises((ValueError, TypeError)) as raised:
                jitgemm.matmul(moved.pop("a"), moved.pop("b"), **moved)
            messages.append(str(raised.value))
        assert messages[0].split()[:3] == messages[1].split()[:3], messages


def test_newer_settings_of_precision():
    a, b = torch.full((16, 32), 1 + 2.0**-12), torch.ones(32, 16)
    settings = torch.backends.cuda.matmul
    if not hasattr(settings, "fp32_precision"):
        pytest.skip("this torch has none")
    program = """
        import torch, jitgemm
        a, b = torch.full((16, 32), 1 + 2.0**-12), torch.ones(32, 16)
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert (jitgemm.matmul(a, b) == 32).all()
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        assert (jitgemm.matmul(a, b) == 32 + 2.0**-7).all()
        """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], capture_output=True,
                          text=True, timeout=300)  # what was set by the older functions says otherwise for ever
    assert done.returncode == 0, done.stderr


def test_a_torch_whose_state_cannot_be_read():
    program = """
        import contextlib
        import torch
        known = torch.inference_mode
        torch.inference_mode = contextlib.nullcontext  # by which it is seen whether the state is where it was
        import jitgemm
        from jitgemm import epilogues
        a, b, w = (torch.randn(shape) for shape in ((6, 8), (8, 4), (2, 8, 4)))
        clamp = {"epilogue": epilogues.clamp(), "operands": {"low": -1.0, "high": 1.0}}
        offs = torch.tensor([2, 6], dtype=torch.int32)
        def close(x, y):
            return torch.allclose(x, y, atol=1e-4)
        product = jitgemm.matmul(a, b)
        torch.inference_mode = known
        of_groups = torch.cat([a[:2] @ w[0], a[2:] @ w[1]])
        assert close(product, a @ b)
        assert close(jitgemm.matmul(a, b, **clamp), (a @ b).clamp(-1, 1))
        assert close(jitgemm.linear(a, b.t(), **clamp), (a @ b).clamp(-1, 1))
        assert close(jitgemm.Matmul(a, b)(), a @ b)
        assert close(jitgemm.grouped_mm(a, w, offs), of_groups)
        assert close(jitgemm.grouped_mm(a, w, offs, **clamp), of_groups.clamp(-1, 1))
        ours, theirs = (a.clone().requires_grad_() for _ in range(2))
        jitgemm.grouped_mm(ours, w, offs).sum().backward()
        torch.cat([theirs[:2] @ w[0], theirs[2:] @ w[1]]).sum().backward()
        assert close(ours.grad, theirs.grad)
        for call in (lambda: jitgemm.matmul(ours, b, **clamp), lambda: jitgemm.grouped_mm(ours, w, offs, **clamp),
                     lambda: jitgemm.Matmul(ours, b)()):
            try:
                call()
            except RuntimeError as error:
                assert "requires a gradient" in str(error), error
            else:
                raise AssertionError("a gradient was lost")
            with torch.no_grad():
                call()
        with torch.autograd.forward_ad.dual_level():
            for call in (lambda: jitgemm.matmul(a, b, **clamp), lambda: jitgemm.grouped_mm(a, w, offs)):
                try:
                    call()
                except RuntimeError as error:
                    assert "past torch's operators" in str(error), error
                else:
                    raise AssertionError("a derivative was lost")
        with torch.autocast("cpu", torch.bfloat16):
            assert jitgemm.matmul(a, b, **clamp).dtype == torch.bfloat16
        """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_deterministic_and_inference_mode():
    a, b = torch.randn(4, 8, requires_grad=True), torch.randn(8, 4)
    with torch.inference_mode():
        y = jitgemm.matmul(a, b)
    assert not y.requires_grad and close(y, a @ b)
    torch.use_deterministic_algorithms(True)
    try:
        assert close(jitgemm.matmul(a, b), a @ b)
    finally:
        torch.use_deterministic_algorithms(False)


def test_threads_that_begin_at_once():
    """One imports what it needs, and the other does not wait for it with Python's lock."""
    program = textwrap.dedent("""
        import sys, threading, torch, jitgemm
        assert "jitgemm.torch" not in sys.modules
        a = torch.ones(4, 4, requires_grad=True)
        begin = threading.Barrier(4)
        def work():
            begin.wait()
            jitgemm.matmul(a, a).sum().backward()
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads], [thread.join() for thread in threads]
    """)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
