"""The device on which torch computes: the only place that interprets its name."""

import torch

DEVICES = ("auto", "cpu", "cuda")
_CUDA = torch.device("cuda")
_CPU = torch.device("cpu")


def resolve_device(name: str, slot: str) -> torch.device:
    """Convert the name of a device.

    `name` {"auto", "cpu", "cuda"}: ``"auto"`` is CUDA where there is a device, else the
    CPU; `slot`: the parameter, for the message. Raises `ValueError`: if torch finds no
    CUDA device.
    """
    if name == "auto":
        return _CUDA if torch.cuda.is_available() else _CPU
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"{slot}='cuda', but torch finds no CUDA device. Pass 'cpu' or 'auto', or "
            "install a build of torch for the GPU of this machine."
        )
    return _CUDA if name == "cuda" else _CPU


def device_in_use(name: str) -> torch.device:
    """Convert the name of the device of a fitted model, which any machine can use.

    ``"cuda"`` is the CPU if torch finds no CUDA device, unlike in `resolve_device`:
    models that were trained on a GPU are often used elsewhere.
    """
    found = torch.cuda.is_available()
    return _CUDA if found and name in ("auto", "cuda") else _CPU
