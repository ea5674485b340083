"""The value that a fit returns, and its plain form for pickles and skops."""

import sys
from typing import NamedTuple

import torch

from skvnce.fitted.base import CellModel
from skvnce.tables.schema import Schema


class Fitted(NamedTuple):
    """What a fit has learned: an estimator stores this one value."""

    schema: Schema
    model: CellModel | None  # None if all columns are constant
    report: dict  # public attributes of the estimator, by name


_KIND = "of"  # the key of the name of a class
_TENSOR = "Tensor"
_NOT_STORED = ("cache",)


def plain(value: object) -> object:
    """Convert a value of tuples and tensors to dicts, lists and arrays, recursively."""
    if isinstance(value, torch.Tensor):
        return {_KIND: _TENSOR, "array": value.numpy()}
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", range(len(value)))
        items = {
            str(name): {} if name in _NOT_STORED else plain(one)
            for name, one in zip(fields, value, strict=True)
        }
        return {_KIND: _name_of(type(value)), **items}
    if isinstance(value, dict):
        return {"keys": list(value), "values": [plain(one) for one in value.values()]}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


def of_plain(value: object) -> object:
    """Convert what `plain` has made back."""
    if isinstance(value, list):
        return [of_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if _KIND not in value:
        values = map(of_plain, value.get("values", ()))
        return dict(zip(value.get("keys", ()), values, strict=True))
    name, items = value[_KIND], [of_plain(v) for k, v in value.items() if k != _KIND]
    if name == _TENSOR:
        return torch.from_numpy(*items)
    return tuple(items) if name == tuple.__name__ else _class_of(name)(*items)


def _name_of(cls: type) -> str:
    return cls.__name__ if cls is tuple else f"{cls.__module__}:{cls.__name__}"


def _class_of(name: str) -> type:
    """Find the named tuple of a value, in a module that its estimator has imported."""
    home, _, name = name.partition(":")
    cls = getattr(sys.modules[home], name)
    if not (isinstance(cls, type) and issubclass(cls, tuple)):
        raise TypeError(f"{cls!r} is no value of a fitted model.")
    return cls


def without_fit(attributes: dict) -> dict:
    """Select the attributes of an estimator that no fit of ours has set.

    These are its parameters, and what scikit-learn and subclasses of users have set.
    """
    fitted = attributes.get("_fitted")
    ours = set() if fitted is None else {"_fitted", *fitted.report}
    return {name: value for name, value in attributes.items() if name not in ours}


def set_by_fit(estimator: object, copy: object) -> dict:
    """Select the attributes that a fit has set on a copy of an estimator."""
    before, nothing = without_fit(vars(estimator)), object()
    return {
        name: value
        for name, value in vars(copy).items()
        if name != "_fitted" and before.get(name, nothing) is not value
    }


def with_plain_fit(state: dict) -> dict:
    """Replace the value of a fit by plain values, and its report by its names."""
    fitted = state.get("_fitted")
    if not isinstance(fitted, Fitted):
        return state
    return {**state, "_fitted": plain(fitted._replace(report=list(fitted.report)))}


def with_fit(state: dict) -> dict:
    """Restore the value of a fit from what `with_plain_fit` returned."""
    fitted = state.get("_fitted")
    if not isinstance(fitted, dict):
        return state
    fitted = of_plain(fitted)
    report = {name: state[name] for name in fitted.report}
    return {**state, "_fitted": fitted._replace(report=report)}
