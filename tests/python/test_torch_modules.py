"""jitgemm.torch.Linear, and replace_linear(). On CPU tensors, by the emulator."""
import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import jitgemm  # noqa: E402
import jitgemm.torch  # noqa: E402
from torch_tensors import close  # noqa: E402


def test_linear_module():
    theirs = torch.nn.Linear(8, 5)
    ours = jitgemm.torch.Linear(8, 5)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 8)
    assert close(ours(x), theirs(x))
    with pytest.raises(ValueError, match='activation is "foo"; choose one of None, relu'):
        jitgemm.torch.Linear(8, 5, activation="foo")
    with pytest.raises(TypeError, match="from_linear.. takes a torch.nn.Linear, and this is a ReLU"):
        jitgemm.torch.Linear.from_linear(torch.nn.ReLU())
    with pytest.raises(TypeError, match="weight has no shape yet"):
        jitgemm.torch.Linear.from_linear(torch.nn.LazyLinear(5))
    with pytest.raises(TypeError, match="weight is computed from other parameters"):
        jitgemm.torch.Linear.from_linear(torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(8, 5)))
    shared = jitgemm.torch.Linear.from_linear(theirs, activation="relu")
    assert jitgemm.torch.Linear.from_linear(shared).activation == "relu"
    assert shared.weight is theirs.weight and shared.bias is theirs.bias
    assert close(shared(x), torch.relu(theirs(x)))
    assert "activation=relu" in repr(shared)
    for copied in (copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))):
        assert close(copied(x), shared(x)) and copied.activation == "relu"
    assert close(jitgemm.torch.Linear(8, 5, bias=False, dtype=torch.float64)(x.double()).detach() * 0, torch.zeros(2, 3, 5))


def test_replace_linear():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(10, 8)
            self.block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8, bias=False))
            self.head = torch.nn.Linear(8, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(self.block(self.embedding(tokens)))

    model = Model()
    tokens = torch.randint(10, (2, 5))
    before = model(tokens)
    assert jitgemm.torch.replace_linear(copy.deepcopy(model), lambda name, module: name != "head") == ["block.0", "block.2"]
    seen = []
    model.block[0].register_forward_hook(lambda *_: seen.append(1))
    assert jitgemm.torch.replace_linear(model) == ["block.0", "block.2", "head"]
    assert model.head.weight is model.embedding.weight and isinstance(model.head, jitgemm.torch.Linear)
    assert close(model(tokens), before) and seen == [1]
    assert jitgemm.torch.replace_linear(model) == []
    model(tokens).sum().backward()
    assert model.embedding.weight.grad is not None
