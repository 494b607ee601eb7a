"""The scripts of tools/python/examples, where there is no GPU."""
import importlib.util
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed")

EXAMPLES = pathlib.Path(__file__).parents[2] / "tools" / "python" / "examples"


def run(name: str, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-W", "ignore", str(EXAMPLES / name), *arguments], capture_output=True,
                          text=True, timeout=300)


def test_a_transformer_on_the_emulator():
    pytest.importorskip("transformers", reason="transformers is not installed")
    done = run("transformer.py", "--config", "tiny")
    assert done.returncode == 0, done.stderr
    assert "15 linear layers by jitgemm" in done.stdout
    assert "logits against float32's" in done.stdout


def test_a_gated_layer_on_the_emulator(tmp_path):
    done = run("swiglu_mlp.py", "--config", "tiny", "--tokens", "1,33", "--csv", str(tmp_path / "lines.csv"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("error") == 8 and "WRONG" not in done.stdout
    assert len((tmp_path / "lines.csv").read_text().splitlines()) == 9


def test_a_layer_of_experts_on_the_emulator(tmp_path):
    pytest.importorskip("transformers.models.qwen3_moe", reason="no transformers with Qwen3-MoE is installed")
    done = run("moe_layer.py", "--decode", "1", "--csv", str(tmp_path / "lines.csv"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "emulator" in done.stdout and "WRONG" not in done.stdout and "left out" not in done.stdout
    lines = (tmp_path / "lines.csv").read_text().splitlines()
    assert sum(",jitgemm," in line for line in lines) == 2 and sum(",loop," in line for line in lines) == 2


def test_arms_for_another_bench():
    import torch

    spec = importlib.util.spec_from_file_location("extra", EXAMPLES / "peers_groups.py")
    extra = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extra)
    case = extra.Case(extra.Weights(4, 48, 144, True, "cpu"), 2, 5, False)
    assert extra.arms({"dtype": "bf16", "A": []}) == {}
    d = extra.arms(case.as_case())["jitgemm"](0)
    assert d is case.d[0] and torch.allclose(d[case.rows].float(), case.expected, rtol=1e-2, atol=1e-2)


def test_groups_beside_peers_on_the_emulator(tmp_path):
    done = run("peers_groups.py", "--tokens", "5", "--csv", str(tmp_path / "lines.csv"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout and len((tmp_path / "lines.csv").read_text().splitlines()) == 7
    assert run("peers_groups.py", "--models", "huge").returncode == 1


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(EXAMPLES))
    spec.loader.exec_module(module)
    sys.path.remove(str(EXAMPLES))
    return module


def test_replays_and_bits_on_the_emulator(tmp_path):
    done = run("replayed_groups.py", "--replays", "2", "--groups", "5", "--csv", str(tmp_path / "lines.csv"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("2 replays, 0 wrong") == 4 and done.stdout.count("18 groupings, 0 with other bits") == 2
    assert len((tmp_path / "lines.csv").read_text().splitlines()) == 7


def test_a_replay_that_is_wrong_is_seen():
    import torch

    replayed = loaded("replayed_groups")
    for product in [replayed.OfRows(kind, 3, 40, 32, 144, "cpu") for kind in replayed.KINDS] + [replayed.AlongK(3, 40, 16, 24, "cpu")]:
        product.ends.copy_(torch.tensor([10, 10, 40]))
        product.d.fill_(float("nan"))
        product()
        assert product.wrong() == 0
        product.d[-1].fill_(float("nan"))  # left out
        assert product.wrong() > 0
        product()
        product.d.mul_(1.1)
        assert sum(int(product.wrong()) for _ in range(8)) > 0
    rows = replayed.OfRows("bf16", 3, 40, 32, 144, "cpu")
    rows.ends.copy_(torch.tensor([10, 20, 30]))
    rows.d.fill_(0)  # nobody's rows are written
    rows()
    assert rows.wrong() == 10


def test_scales_beside_peers_on_the_emulator(tmp_path):
    done = run("peers_scaled.py", "--layers", "48x64", "--tokens", "1,40", "--csv", str(tmp_path / "lines.csv"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("(error") == 12 and "WRONG" not in done.stdout
    assert len((tmp_path / "lines.csv").read_text().splitlines()) == 13
    assert run("peers_scaled.py").returncode == 1 and run("peers_scaled.py", "--types", "int4").returncode == 1


def test_first_uses_on_the_emulator():
    text = EXAMPLES.parents[1] / "examples" / "epilogues" / "silu_mul.txt"
    done = run("first_use.py", str(text))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ms") == 3 and "silu_mul" in done.stdout


def test_gradients_of_experts_on_the_emulator(tmp_path):
    (tmp_path / "further.py").write_text("def arms(case):\n    return {'zeros': lambda i: case.D[i].zero_()}\n")
    done = run("peers_gradients.py", "--arms", str(tmp_path / "further.py"), "--csv", str(tmp_path / "lines.csv"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout and done.stdout.count("zeros (error 1.0e+00)") == 6
    assert len((tmp_path / "lines.csv").read_text().splitlines()) == 13
    assert run("peers_gradients.py", "--sizes", "none").returncode == 1


@pytest.mark.parametrize("name", ["tensor_parallel.py", "peers_parallel.py", "soak_parallel.py"])
def test_ranks_take_gpus(name):
    import torch

    done = run(name)
    why = "ranks take one each: 2 at least" if torch.cuda.device_count() < 2 else "start it by torchrun"
    assert done.returncode == 1 and why in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["transformer.py", "overhead.py", "swiglu_mlp.py", "moe_layer.py", "peers_groups.py",
                                  "peers_gradients.py", "peers_scaled.py", "replayed_groups.py", "first_use.py", "tensor_parallel.py", "peers_parallel.py", "soak_parallel.py"])
def test_help(name):
    done = run(name, "--help")
    assert done.returncode == 0 and name in done.stdout
