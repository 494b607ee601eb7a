"""TensorParallel of a process group, as torch has them."""
import contextlib
import sys
import types
import weakref

import pytest
from parallel_world import World, ones

import jitgemm


class Backend:
    """As torch's of NCCL is, which has a communicator once it has communicated, for the current device."""

    def __init__(self, address: int, ready: bool = True) -> None:
        self.address, self.ready, self.asked = address, ready, []

    def _comm_ptr(self) -> int:
        self.asked.append(sys.modules["torch"].cuda.current)
        return self.address if self.ready else 0


class Group:
    def __init__(self, backend: object) -> None:
        self.backend, self.devices = backend, []

    def _get_backend(self, device: str) -> object:
        self.devices.append(device)
        if self.backend is None:
            raise RuntimeError("No backend type associated with device type")
        return self.backend


@pytest.fixture
def stand_in(monkeypatch):
    """What of torch is asked about a process group."""
    current = types.SimpleNamespace(current=3)

    @contextlib.contextmanager
    def device(name: str):
        before, current.current = current.current, int(name.partition(":")[2])
        yield
        current.current = before

    def all_reduce(tensor: object, group: Group) -> None:
        assert tensor == "1 element"
        group.backend.ready = group.backend.address != 0

    current.device, current.current_device = device, lambda: current.current
    torch = types.SimpleNamespace(device=str, cuda=current, zeros=lambda count, device: f"{count} element",
                                  distributed=types.SimpleNamespace(all_reduce=all_reduce))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


@pytest.mark.parametrize("ready", [True, False])
def test_a_process_group_s_communicator(stand_in, ready):
    with World(1) as world:
        group = Group(Backend(world.communicator(0), ready))
        member = jitgemm.TensorParallel(group, context=jitgemm.default_context("cpu"))
        assert group.devices == ["cpu"] and len(group.backend.asked) == (1 if ready else 2)
        gone = weakref.ref(group)
        del group
        assert gone() is not None  # its communicator is used
        assert (member.matmul_all_reduce(ones(4, 8), ones(8, 4)) == 8).all()
        del member
        assert gone() is None


def test_a_process_group_on_gpus(stand_in):
    from jitgemm._process_groups import communicator_of

    group = Group(Backend(4096))
    assert communicator_of(group, "cuda:1") == 4096 and communicator_of(group, None) == 4096
    assert group.devices == ["cuda:1", "cuda:3"] and group.backend.asked == [1, 3]
    wrapped = Group(types.SimpleNamespace(wrapped_pg=group.backend))
    assert communicator_of(wrapped, "cuda:0") == 4096


@pytest.mark.parametrize("backend, kind, message", [
    (None, TypeError, 'the process group has no backend for cpu; make it with backend="nccl"'),
    (types.SimpleNamespace(), TypeError, "backend for cpu is SimpleNamespace, which tells of no NCCL communicator"),
    (Backend(0), RuntimeError, "has no NCCL communicator on cpu after an all_reduce"),
])
def test_process_groups_without_nccl(stand_in, backend, kind, message):
    with pytest.raises(kind) as raised:
        jitgemm.TensorParallel(Group(backend), context=jitgemm.default_context("cpu"))
    assert message in str(raised.value)
