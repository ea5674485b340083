"""The value that a fit returns, and its plain form for pickles and skops."""

from typing import NamedTuple

from skvnce.table_imputer import columns, copies, expansion, model, normal
from skvnce.tables.column_kinds import Column
from skvnce.tables.schema import Schema
from skvnce.tables.valid_values import ValidValues


class Fitted(NamedTuple):
    """What a fit has learned: an estimator stores this one value."""

    schema: Schema
    model: model.TableModel | None  # None if all columns are constant
    report: dict  # public attributes of the estimator, by name


_VALUES = {
    one.__name__: one
    for one in (
        Column,
        Fitted,
        Schema,
        ValidValues,
        columns.ColumnModel,
        columns.Residuals,
        columns.Shape,
        copies.Copy,
        expansion.Expansion,
        expansion.Part,
        expansion.Product,
        model.Settings,
        model.TableModel,
        model.Training,
        normal.Fit,
        normal.Normal,
        tuple,
    )
}
_KIND = "of"  # the key of the name of a class
_NOT_STORED = ("cache",)


def plain(value):
    """Convert a value of tuples to dicts and lists, recursively."""
    if isinstance(value, tuple):
        fields = getattr(value, "_fields", range(len(value)))
        items = {
            str(name): {} if name in _NOT_STORED else plain(one)
            for name, one in zip(fields, value, strict=True)
        }
        return {_KIND: type(value).__name__, **items}
    if isinstance(value, dict):
        return {"keys": list(value), "values": [plain(one) for one in value.values()]}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


def of_plain(value):
    """Convert what `plain` has made back."""
    if isinstance(value, list):
        return [of_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if _KIND not in value:
        values = map(of_plain, value.get("values", ()))
        return dict(zip(value.get("keys", ()), values, strict=True))
    cls = _VALUES[value[_KIND]]
    items = [of_plain(one) for name, one in value.items() if name != _KIND]
    return tuple(items) if cls is tuple else cls(*items)
