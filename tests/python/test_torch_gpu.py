"""Products of torch's tensors on GPUs: streams, captured graphs and devices."""
import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import jitgemm  # noqa: E402
from torch_tensors import close  # noqa: E402


@pytest.mark.gpu
def test_a_captured_graph_of_100_products():
    a, b = torch.randn(128, 256, device="cuda").half(), torch.randn(256, 128, device="cuda").half()
    c = [torch.empty(128, 128, device="cuda", dtype=torch.half) for _ in range(100)]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        jitgemm.matmul(a, b, out=c[0])
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            for i in range(100):
                jitgemm.matmul(a, b, alpha=i, out=c[i])
    for _ in range(3):
        a.copy_(torch.randn_like(a))
        for d in c:
            d.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        for i, d in enumerate(c):
            assert close(d / 16, i * (a.double() @ b.double()) / 16, 2e-2 * (i + 1))


@pytest.mark.gpu
def test_threads_and_streams():
    b = torch.randn(512, 384, device="cuda").half()
    torch.cuda.synchronize()
    failed = []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(100):
                a = torch.randn(256, 512, device="cuda").half()
                d = jitgemm.matmul(a, b)
                if not close(d, a.double() @ b.double(), 5e-2):
                    failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.gpu
def test_a_named_stream_is_the_one_that_is_used():
    a, b = torch.randn(2048, 2048, device="cuda").half(), torch.randn(2048, 2048, device="cuda").half()
    expected = a.double() @ b.double()
    torch.isnan(jitgemm.matmul(a, b)).any().item()  # compiles, and loads torch's kernels
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for stream in (side, side.cuda_stream):
        out = torch.full((2048, 2048), float("nan"), device="cuda", dtype=torch.half)
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)
        jitgemm.matmul(a, b, out=out, stream=stream)
        assert torch.isnan(out).any()  # the default stream does not wait for a stream of torch's
        side.synchronize()
        assert close(out / 64, expected / 64, 1e-2)
    with pytest.raises(ValueError, match="a copy would be made on another stream"):
        jitgemm.matmul(a[:, ::2], b[::2], stream=side)


@pytest.mark.gpu
def test_devices_that_differ():
    a, b = torch.randn(8, 8, device="cuda"), torch.randn(8, 8)
    with pytest.raises(ValueError, match="b is on cpu, and a on cuda:0"):
        jitgemm.matmul(a, b)
    with pytest.raises(ValueError, match="the context is of the emulator, and the arrays are on cuda:0"):
        jitgemm.matmul(a, a, context=jitgemm.default_context("cpu"))


@pytest.mark.gpu
def test_a_framework_that_knows_no_streams_is_waited_for():
    class Unordered:
        """Speaks DLPack alone, as JAX does on a GPU."""

        def __init__(self, tensor):
            self.tensor, self.streams = tensor, []

        def __dlpack__(self, *, stream=None, **keywords):
            self.streams.append(stream)
            return self.tensor.__dlpack__(stream=-1)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    a, b = (Unordered(torch.randn(4096, 4096, device="cuda").half()) for _ in range(2))
    out = torch.full((4096, 4096), float("nan"), device="cuda").half()
    side = torch.cuda.Stream()
    jitgemm.matmul(a, b, out=out)
    torch.cuda.synchronize()
    out.fill_(float("nan"))
    torch.cuda.synchronize()
    jitgemm.matmul(a, b, out=out, stream=side)
    assert side.query()  # nothing is left to do
    assert not torch.isnan(out).any()
    assert a.streams == [1, side.cuda_stream]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device")
def test_the_second_device():
    assert [device.architecture for device in jitgemm.devices()] == ["sm_90a"] * torch.cuda.device_count()
    a, b = torch.randn(64, 96, device="cuda:1"), torch.randn(96, 32, device="cuda:1")
    assert torch.cuda.current_device() == 0
    d = jitgemm.matmul(a, b)
    assert d.device == a.device and close(d, a @ b, 1e-4)
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        assert jitgemm.Context().plan(jitgemm.Problem(64, 32, 96, a="f32")).device
        assert close(jitgemm.matmul(a, b, context=jitgemm.Context()), a @ b, 1e-4)
    first = a.to("cuda:0")
    with pytest.raises(ValueError, match="b is on cuda:1, and a on cuda:0"):
        jitgemm.matmul(first, b)
    with pytest.raises(ValueError, match="the context is of cuda:1, and the arrays are on cuda:0"):
        jitgemm.matmul(first, first.t(), context=jitgemm.default_context("cuda:1"))
    results = {}

    def work(index):
        results[index] = jitgemm.matmul(a.to(f"cuda:{index}"), b.to(f"cuda:{index}")).cpu()

    threads = [threading.Thread(target=work, args=(index % 2,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(results[0], results[1])
