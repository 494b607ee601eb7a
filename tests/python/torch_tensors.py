"""What the tests of torch's tensors share."""
import pytest
import torch

F = torch.nn.functional
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ACTIVATIONS = {None: lambda x: x, "relu": torch.relu, "leaky_relu": lambda x: F.leaky_relu(x, 0.25), "gelu": F.gelu,
               "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}


def close(x, y, tolerance=1e-5):
    return torch.allclose(x.double().cpu(), y.double().cpu(), rtol=tolerance, atol=tolerance)
