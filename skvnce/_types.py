"""Types of arguments that many public functions share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from skvnce._imputer.parts.chunks import Chunks

TableLike = Union[ArrayLike, "Chunks"]  # noqa: UP007 (Chunks is read by type checkers alone)
ByColumn = ArrayLike | Mapping[Any, Any]  # for all columns, in their order, or by name
Seed = int | np.random.RandomState | np.random.Generator | None
Method = TypeVar("Method", bound=Callable[..., Any])
