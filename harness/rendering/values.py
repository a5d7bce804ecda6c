"""Defines the values of template parameters, and how the command line and CUDA write them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

from harness.errors import TemplateError

Value = bool | int | float | str

TYPE_NAMES = ("int", "float", "bool", "str")

# Text goes into source files. It may name things but must not open a string or a comment.
_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_.+-]*")


def has_type(value: object, type_name: str) -> bool:
    """Returns whether a value has a parameter type. A bool is not an int; an int is a float."""
    match type_name:
        case "bool":
            return isinstance(value, bool)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "float":
            return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        case "str":
            return isinstance(value, str) and _PLAIN_TEXT.fullmatch(value) is not None
    return False


def parsed(text: str, type_name: str) -> Value | None:
    """Converts a text from the command line to a value, or to None if it is not of that type."""
    try:
        match type_name:
            case "bool":
                return {"true": True, "false": False}.get(text.lower())
            case "int":
                return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None
            case "float":
                number = float(text)
                return number if math.isfinite(number) else None
    except ValueError:
        return None
    return text if has_type(text, "str") else None


def written(value: Value) -> str:
    """Returns a value as ``parsed`` reads it from the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def canonical(settings: Mapping[str, Value]) -> str:
    """Returns settings as one line of JSON in a fixed order, so equal settings give equal text."""
    return json.dumps(dict(settings), sort_keys=True, separators=(",", ":"), allow_nan=False)


def cpp_literal(value: Value) -> str:
    """Writes a value in C++ (``true``, ``4``, ``0.5f``, ``name``): the Jinja filter ``cpp``.

    Raises:
        TemplateError: A parameter cannot have this value.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | str):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return f"{value!r}f"
    raise TemplateError(f"the filter cpp has no C++ literal for {value!r}.")
