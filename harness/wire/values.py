"""Encodes constructor and forward arguments that are not tensors as tagged JSON.

Only plain values can cross: None, bool, int, float, str, torch's dtypes, and lists, tuples and dicts
of them.
"""

from __future__ import annotations

import json
import math
from typing import Any


class UnsupportedValue(TypeError):
    """The error for a value that cannot cross.

    The message names its type and the types that can.
    """


def encode_plain(value: Any) -> str:
    """Encodes a plain value as JSON text.

    Raises:
        UnsupportedValue: The value is, or contains, something else.
    """
    return json.dumps(_tag(value))


def decode_plain(text: str) -> Any:
    """Decodes a value that ``encode_plain`` encoded.

    Raises:
        ValueError: ``encode_plain`` did not write this text.
    """
    return _untag(json.loads(text))


def _tag(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, list):
        return [_tag(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_tag(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_tag(key), _tag(item)] for key, item in value.items()]}
    if f"{type(value).__module__}.{type(value).__name__}" == "torch.dtype":  # torch may not be imported
        return {"dtype": str(value).removeprefix("torch.")}
    raise UnsupportedValue(
        f"cannot pass a {type(value).__name__} to a candidate; supported are tensors, None, bool, int, "
        "float, str, torch's dtypes, and lists, tuples and dicts of the plain values: pass what it holds as inputs "
        "of their own"
    )


def _untag(value: Any) -> Any:
    if isinstance(value, list):
        return [_untag(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "float":
        return float(content)
    if tag == "dtype":
        from harness.wire.arena import dtype_named

        return dtype_named(content)
    if tag == "tuple":
        return tuple(_untag(item) for item in content)
    if tag == "dict":
        return {_untag(key): _untag(item) for key, item in content}
    raise ValueError(f"unknown tag {tag!r}")
