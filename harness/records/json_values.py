"""Converts the fields of records to JSON values and back."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from typing import Any

from harness.system.text import shortened

#: How JSON has the numbers that it cannot represent.
NON_FINITE = ("inf", "-inf", "nan")


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

    A type may be a dataclass, a TypedDict (which stays a dict and keeps its further keys), an enum,
    a collection of these, or ``Annotated`` with the type to check. ``int | float`` keeps integers.

    Raises:
        ValueError: The value has another type; ``where`` names the field.
    """
    if hint is Any:
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return converted(value, arguments[1], where)
    if origin is types.UnionType:
        if value is None and types.NoneType in arguments:
            return None
        return _number(value, where) if float in arguments else converted(value, arguments[0], where)
    if isinstance(value, dict) and (dataclasses.is_dataclass(hint) or typing.is_typeddict(hint)):
        return _converted_object(value, hint, where)
    if origin in (tuple, list) and isinstance(value, list):
        return origin(_converted_items(value, origin, arguments, where))
    if (origin or hint) is dict and isinstance(value, dict):
        kind = arguments[1] if arguments else Any
        return {key: converted(item, kind, f"{where}[{key!r}]") for key, item in value.items()}
    if hint is float:
        return float(_number(value, where))
    if isinstance(hint, enum.EnumType) and isinstance(value, str):
        try:
            return hint(value)
        except ValueError:
            names = ", ".join(map(str, hint.__members__.values()))
            raise ValueError(f"{where} is {shortened(repr(value), 40)}, but must be one of {names}") from None
    if hint is int and type(value) is int:
        return _within_64_bits(value, where)
    if isinstance(hint, type) and type(value) is hint:
        return value
    raise _mismatch(value, getattr(hint, "__name__", str(hint)), where)


def _converted_items(value: list[Any], origin: type, arguments: tuple[Any, ...], where: str) -> list[Any]:
    if origin is list or arguments[1:] == (Ellipsis,):
        return [converted(item, arguments[0], f"{where}[{place}]") for place, item in enumerate(value)]
    if len(value) != len(arguments):
        raise ValueError(f"{where} has {len(value)} items, but must have {len(arguments)}")
    kinds = enumerate(zip(value, arguments, strict=True))
    return [converted(item, kind, f"{where}[{place}]") for place, (item, kind) in kinds]


def _number(value: Any, where: str) -> int | float:
    """Returns a number; JSON has non-finite ones as strings."""
    if type(value) is int:
        return _within_64_bits(value, where)
    if type(value) is float or (isinstance(value, str) and value in NON_FINITE):
        return float(value)
    raise _mismatch(value, "a number", where)


def _within_64_bits(value: int, where: str) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{where} is too large: an integer beyond 64 bits")
    return value


def _mismatch(value: Any, wanted: str, where: str) -> ValueError:
    return ValueError(f"{where} is {type(value).__name__}, but must be {wanted}")


def _converted_object(value: dict[str, Any], hint: Any, where: str) -> Any:
    known = {}
    hints, required = _fields(hint)
    for name, kind in hints.items():
        if name in value:
            known[name] = converted(value[name], kind, f"{where}.{name}")
        elif name in required:
            raise ValueError(f"{where} has no {name!r}")
    return {**value, **known} if typing.is_typeddict(hint) else hint(**known)


@functools.cache
def _fields(hint: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """Returns the types of an object's fields, and the names of those that it must have."""
    hints = typing.get_type_hints(hint, include_extras=True)
    if typing.is_typeddict(hint):
        return hints, hint.__required_keys__
    missing = dataclasses.MISSING
    fields = {one.name: one for one in dataclasses.fields(hint)}
    required = (name for name, one in fields.items() if one.default is missing and one.default_factory is missing)
    return {name: hints[name] for name in fields}, frozenset(required)
