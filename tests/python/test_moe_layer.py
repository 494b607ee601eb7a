"""The layer of tools/python/examples/moe_layer.py beside transformers' own: on CPU tensors, by the emulator."""
import importlib.util
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers.models.qwen3_moe", reason="no transformers with Qwen3-MoE is installed")

EXAMPLE = pathlib.Path(__file__).parents[2] / "tools" / "python" / "examples" / "moe_layer.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("moe_layer", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def layers(example):
    torch.manual_seed(5)
    block, config = example.make_block("tiny", "cpu")
    experts = example.Experts(*example.stacked(block), example.JitgemmProducts())
    return block, example.Moe(block, experts, config.num_experts_per_tok)


def of_transformers(block, x):
    y = block(x)
    return y[0] if isinstance(y, tuple) else y  # with the router's logits, before transformers 5


def close(x, y):
    return float((x.float() - y.float()).norm()) <= 1e-2 * float(y.float().norm())


@pytest.mark.parametrize("shape", [(1, 1), (3, 11)])
def test_the_layer_is_transformers_own(layers, shape):
    block, ours = layers
    x = torch.randn(*shape, 64).bfloat16()
    with torch.no_grad():
        y = ours(x)
        assert y.shape == x.shape and y.dtype == x.dtype
        assert close(y, of_transformers(block, x))


def test_rows_that_all_go_to_one_expert_and_an_expert_without(layers):
    _, ours = layers
    x = torch.randn(20, 64).bfloat16()
    index, weights = torch.tensor([[6, 1]]).repeat(20, 1), torch.rand(20, 2).bfloat16()
    with torch.no_grad():
        y = ours.experts(x, index, weights)
    expected = 0
    for place, expert in enumerate((6, 1)):
        gate, up = (x.float() @ ours.experts.gate_up[expert].float().t()).chunk(2, dim=-1)
        expected += (torch.nn.functional.silu(gate) * up) @ ours.experts.down[expert].float().t() * weights[:, place, None]
    assert close(y, expected)


def test_torch_compile_sees_the_whole_layer(layers):
    _, ours = layers
    x = torch.randn(1, 5, 64).bfloat16()
    with torch.no_grad():
        assert close(torch.compile(ours, backend="aot_eager", fullgraph=True)(x), ours(x))
