"""TensorParallel's products of torch's tensors. Ranks are threads, on the emulator."""
import importlib.util
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from parallel_world import METHODS, Case, World  # noqa: E402


@pytest.mark.parametrize("method", METHODS)
def test_tensors(method):
    case = Case(method, 2)

    def work(parallel, rank):
        a, b = map(torch.from_numpy, case.of(rank))
        weight, multiply = torch.nn.Parameter(b.t().contiguous()), getattr(parallel, method)
        with pytest.raises(RuntimeError, match="b requires a gradient, and a product across ranks has none; use torch.no_gr"):
            multiply(a, weight.t())
        with pytest.raises(RuntimeError, match="a product across ranks is computed past torch's operators"):
            torch.func.vmap(lambda b: multiply(a, b))(b[None])
        with torch.no_grad():
            d = multiply(a, weight.t())
            out = torch.empty_like(d)
            version = out._version
            assert multiply(a, weight.t(), out=out) is out and out._version > version and torch.equal(out, d)
            with torch.autocast("cpu", torch.bfloat16):
                parallel.prepare(method, a, weight.t())
                before = len(world.calls(rank))
                assert multiply(a, weight.t()).dtype == torch.bfloat16
                assert len(world.calls(rank)) == before + (method != "matmul_all_reduce")  # that goes in one shot
            return d

    with World(2) as world:
        for rank, d in enumerate(world.each(work)):
            assert d.dtype == torch.float32 and (d.double().numpy() == case.expected(rank)).all()


def test_the_example_s_layer(monkeypatch):
    path = pathlib.Path(__file__).parents[2] / "tools/python/examples/tensor_parallel.py"
    monkeypatch.syspath_prepend(str(path.parent))  # as it is where the script is started
    spec = importlib.util.spec_from_file_location("example", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    x = [torch.randn(8, 64).bfloat16() for _ in range(2)]

    def work(parallel, rank):
        weights = example.Weights(64, 96, rank, 2, "cpu")
        with torch.no_grad():
            return example.ours(parallel, weights)(x[rank]), weights.exact(x[rank])

    with World(2) as world:
        for d, exact_d in world.each(work):
            assert d.shape == exact_d.shape and torch.allclose(d.float(), exact_d, rtol=2e-2, atol=2e-2)
