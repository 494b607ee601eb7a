"""The NCCL communicators of torch's process groups."""
from __future__ import annotations

import contextlib


def communicator_of(group: object, device: str | None) -> int:
    """The address of a group's ncclComm_t on a device, None for torch's current one. A group that has not communicated
    yet has none: then it does, which is collective."""
    if group is None:
        raise TypeError("communicator is None; pass a process group that torch.distributed.init_process_group() or "
                        "new_group() has made, or an ncclComm_t as an integer")
    if hasattr(group, "get_group") and not hasattr(group, "_get_backend"):
        raise TypeError("communicator is a mesh of devices; pass one of its process groups, mesh.get_group(...)")
    if not hasattr(group, "_get_backend"):
        raise TypeError(f"communicator is a {type(group).__name__}; pass a process group of torch.distributed, or an "
                        "ncclComm_t as an integer")
    import torch

    if device is None:
        device = f"cuda:{torch.cuda.current_device()}"
    try:
        backend = group._get_backend(torch.device(device))
    except RuntimeError as error:
        raise TypeError(f"the process group has no backend for {device}; make it with backend=\"nccl\"") from error
    backend = getattr(backend, "wrapped_pg", backend)  # of TORCH_DISTRIBUTED_DEBUG=DETAIL
    if not hasattr(backend, "_comm_ptr"):
        raise TypeError(f"the process group's backend for {device} is {type(backend).__name__}, which tells of no NCCL "
                        "communicator; make the group with backend=\"nccl\" and a torch that has _comm_ptr(), or pass an "
                        "ncclComm_t as an integer")
    # torch looks for the communicator of its current device.
    with torch.cuda.device(device) if device.startswith("cuda") else contextlib.nullcontext():
        address = backend._comm_ptr()
        if not address:
            torch.distributed.all_reduce(torch.zeros(1, device=device), group=group)
            address = backend._comm_ptr()
    if not address:
        raise RuntimeError(f"the process group has no NCCL communicator on {device} after an all_reduce; call "
                           "torch.cuda.set_device() before it is made")
    return address
