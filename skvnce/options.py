"""Settings of estimators, and what they are built of.

These classes are no estimators: an object is passed to one, such as
``solver=Adam(batch_size=64)``.  Each name is imported at its first use, as those of
`skvnce` are.
"""

from importlib import import_module

_HOMES = {
    "ACMWG": "skvnce.autoencoder.options",
    "Adam": "skvnce._imputer.options",
    "Chunks": "skvnce._imputer.parts.chunks",
    "IncompleteDensity": "skvnce.vgi.options",
    "LAIR": "skvnce.autoencoder.options",
    "LBFGS": "skvnce._imputer.options",
    "MCEM": "skvnce.vgi.options",
    "MWG": "skvnce.autoencoder.options",
    "TorchVAE": "skvnce.autoencoder.options",
    "VGI": "skvnce.vgi.options",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'skvnce.options' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
