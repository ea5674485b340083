"""The device on which torch trains: the only place that interprets its name."""

import torch

DEVICES = ("auto", "cpu", "cuda")


def resolve_device(name: str, slot: str) -> torch.device:
    """Convert the name of a device.

    Parameters
    ----------
    name : {"auto", "cpu", "cuda"}
        ``"auto"`` is CUDA where there is a device, else the CPU.
    slot : str
        The parameter, for the message.

    Raises
    ------
    ValueError
        If torch finds no CUDA device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"{slot}='cuda', but torch finds no CUDA device. Pass 'cpu' or 'auto', or "
            "install a build of torch for the GPU of this machine."
        )
    return torch.device(name)
