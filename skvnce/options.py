"""Settings of estimators, and what they are built of.

These classes are no estimators: an object is passed to one, such as
``solver=Adam(batch_size=64)``.  Each name is imported at its first use, as those of
`skvnce` are.
"""

from importlib import import_module

_HOMES = {
    "ACMWG": "skvnce.autoencoder.lair",
    "Adam": "skvnce._imputer.options",
    "Chunks": "skvnce._imputer.parts.chunks",
    "IncompleteDensity": "skvnce.vgi.estimator",
    "LAIR": "skvnce.autoencoder.lair",
    "LBFGS": "skvnce._imputer.options",
    "MCEM": "skvnce.vgi.estimator",
    "MWG": "skvnce.autoencoder.lair",
    "TorchVAE": "skvnce.autoencoder.lair",
    "VGI": "skvnce.vgi.estimator",
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
