"""Dataclasses of the compiler's result as JSON and back.

`encode` and `decode` work on the annotations alone, so a new field needs no code here. A union of
dataclasses is told apart by the names of its fields.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from npulse.sw.ir.types import QuantAttr

__all__ = ["decode", "encode"]


def encode(value: object) -> Any:
    """Turn dataclasses, tuples, numpy types and quantisations into JSON values."""
    match value:
        case QuantAttr():
            return {
                "scales": [float(s) for s in value.scale_array],
                "zero_points": [int(z) for z in value.zero_point_array],
                "axis": None if value.per_tensor else value.axis.data,
            }
        case np.dtype():
            return value.name
        case tuple() | list():
            return [encode(item) for item in value]
        case Mapping():
            return {str(key): encode(item) for key, item in value.items()}
    if is_dataclass(value):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    return value


def decode(hint: Any, value: Any) -> Any:
    """Rebuild a value of the annotated type `hint` from what `encode` made of it.

    Raises
    ------
    TypeError, ValueError, KeyError, IndexError
        `value` is not of that type.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return None if value is None else decode(_choose(arguments, value), value)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(decode(arguments[0], item) for item in value)
        return tuple(decode(a, item) for a, item in zip(arguments, value, strict=True))
    if origin is np.dtype:
        return np.dtype(value)
    if hint is QuantAttr:
        return QuantAttr.of(value["scales"], value["zero_points"], value["axis"])
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        return hint(**{f.name: decode(hints[f.name], value[f.name]) for f in fields(hint)})
    return _plain(hint, value)


def _plain(kind: Any, value: Any) -> Any:
    """Check a number, text or truth value."""
    if not isinstance(value, kind):
        raise TypeError(f"value must be {kind.__name__}, not {value!r}")
    return value


def _choose(members: tuple[Any, ...], value: Any) -> Any:
    """Member of a union that `value` is."""
    members = tuple(member for member in members if member is not type(None))
    if len(members) == 1:
        return members[0]
    matching = [m for m in members if {f.name for f in fields(m)} == set(value)]
    if len(matching) != 1:
        raise TypeError(f"value must have the fields of one of {members}, not {sorted(value)}")
    return matching[0]
