"""Dates and durations from the microseconds that stand for them in a table."""

from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from skvnce.tables.cells import TIMES, UNITS, is_missing
from skvnce.tables.column_kinds import Column

_START = datetime(1970, 1, 1)
_TICK = timedelta(microseconds=1)
_DAY = UNITS[0]
# of the first and the last moment that datetime represents
_ENDS = [(end - _START) // _TICK for end in (datetime.min, datetime.max)]


def time_of(column: Column, microseconds: float) -> date | datetime | timedelta:
    """Convert microseconds to a date, a moment or a duration.

    It is whole in the unit of the column, as all that `fit` has seen are.
    """
    if column.dtype == "duration":
        return timedelta(microseconds=_nearest(microseconds, column.unit))
    low, high = _ENDS
    if column.zone is not None:  # whose clock may be a day ahead of UTC, or behind
        low, high = low + _DAY, high - _DAY
    # a number of the model may be beyond the last date of Python
    since = round(min(max(microseconds, low), high))
    if column.dtype == "date":
        return _moment(since, _DAY).date()
    if column.zone is None:
        return _moment(since, column.unit)
    moment = _moment(since, 0).replace(tzinfo=UTC)
    zone = _zone(column.zone) if column.unit else None
    return moment if zone is None else _by_clock(moment, zone, column.unit)


def microseconds_of(column: Column, value: object, name: str) -> object:
    """Convert a date, a moment or a duration to microseconds; others stay as they are.

    `name`: what has the value, for errors. Raises `TypeError`: for dates in a column of
    others, and with a time zone where others have none.
    """
    if isinstance(value, np.datetime64 | np.timedelta64):
        kind = "M8[us]" if isinstance(value, np.datetime64) else "m8[us]"
        value = value.astype(kind).item()
    if is_missing(value) or not isinstance(value, date | timedelta):
        return value
    if column.dtype not in TIMES or (column.dtype == "duration") != isinstance(
        value, timedelta
    ):
        raise TypeError(f"{name} has {value!r}, and the column has {column.dtype}s.")
    if isinstance(value, timedelta):
        return value / _TICK
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if (value.tzinfo is None) != (column.zone is None):
        has = "no time zone" if column.zone is None else f"the zone {column.zone}"
        raise TypeError(f"{name} has {value!r}, and the dates of the column {has}.")
    start = _START if value.tzinfo is None else _START.replace(tzinfo=UTC)
    return (value - start) / _TICK


def in_words(column: Column, microseconds: float) -> str:
    """Format a date or a duration for messages; infinite ones stay numbers."""
    is_finite = np.isfinite(microseconds)
    return str(time_of(column, microseconds) if is_finite else microseconds)


def _by_clock(moment: datetime, zone: tzinfo, unit: int) -> datetime:
    """Round a moment to a unit by the clock of a time zone."""
    there = moment.astimezone(zone)
    since = (there.replace(tzinfo=None) - _START) // _TICK
    rounded = _moment(since, unit).replace(tzinfo=zone, fold=there.fold)
    return rounded.astimezone(UTC)


def _moment(microseconds: int, unit: int) -> datetime:
    last = _ENDS[1] // unit * unit if unit else _ENDS[1]
    return _START + min(_nearest(microseconds, unit), last) * _TICK


def _nearest(microseconds: float, unit: int) -> int:
    """Round to a multiple of a unit; 0 means none."""
    whole = round(microseconds)
    return (whole + unit // 2) // unit * unit if unit else whole


@cache
def _zone(name: str) -> tzinfo | None:
    """Find a time zone; None if Python does not know it."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    try:  # a fixed distance, such as UTC+02:00
        return datetime.fromisoformat(f"2000-01-01T00{name.removeprefix('UTC')}").tzinfo
    except ValueError:
        return None
