"""Converts the fields of records to JSON values and back."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from typing import Any

_NON_FINITE = ("inf", "-inf", "nan")


def plain(value: Any) -> Any:
    """Replaces values that JSON cannot represent.

    Non-finite floats become strings, and objects of other types become their repr.
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)


def converted(value: Any, hint: Any, where: str) -> Any:
    """Converts a JSON value to the type that a field declares.

    Raises:
        ValueError: The value has another type; ``where`` names the field.
    """
    if hint is Any:
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return None if value is None else converted(value, arguments[0], where)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _converted_object(value, hint, where)
    if origin is tuple and isinstance(value, list):
        return tuple(converted(item, arguments[0], where) for item in value)
    if (origin or hint) is dict and isinstance(value, dict):
        kind = arguments[1] if arguments else Any
        return {key: converted(item, kind, f"{where}[{key!r}]") for key, item in value.items()}
    if hint is float and not isinstance(value, bool) and (isinstance(value, int | float) or value in _NON_FINITE):
        return float(value)
    if isinstance(hint, enum.EnumType) and isinstance(value, str):
        return hint(value)
    if isinstance(hint, type) and type(value) is hint:
        return value
    raise ValueError(f"{where} is {type(value).__name__}, but must be {getattr(hint, '__name__', hint)}")


def _converted_object(value: dict[str, Any], hint: Any, where: str) -> Any:
    hints = typing.get_type_hints(hint)
    known = {}
    for declared in dataclasses.fields(hint):
        if declared.name in value:
            known[declared.name] = converted(value[declared.name], hints[declared.name], f"{where}.{declared.name}")
        elif declared.default is dataclasses.MISSING and declared.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where} has no {declared.name!r}")
    return hint(**known)
