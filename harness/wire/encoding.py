"""The JSON form of messages, and their strict decoding.

On the wire a message is one JSON object with its class name under ``type``. Decoding refuses
unknown types, missing fields, extra fields and wrong field types. The worker runs untrusted code,
so whatever it sends is either one of the known messages or a broken rule.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from typing import Any

from harness.wire.commands import Command
from harness.wire.replies import Reply

#: The integers that both sides can represent: C++, torch and SQLite have signed 64 bits.
MIN_INTEGER, MAX_INTEGER = -(1 << 63), (1 << 63) - 1


class SchemaError(ValueError):
    """The error for bytes that are not a message of this schema."""


def encode(message: Command | Reply) -> bytes:
    """Encodes a message as UTF-8 JSON."""
    body = {"type": type(message).__name__, **dataclasses.asdict(message)}
    return json.dumps(body, allow_nan=True).encode()


def decode(data: bytes, known: dict[str, type]) -> Any:
    """Decodes a message and checks it against the schema.

    Args:
        data: UTF-8 JSON.
        known: The message classes by name: ``COMMANDS`` or ``REPLIES``.

    Returns:
        An instance of one of the classes.

    Raises:
        SchemaError: The data is anything else.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"not JSON: {error}") from None
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        raise SchemaError("not an object with a type")
    name = body.pop("type")
    if name not in known:
        raise SchemaError(f"unknown message type {name!r}")
    return _build(known[name], body, name)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """Returns the types of a message's fields.

    Cached, because the lookup takes most of the decoding time.
    """
    return typing.get_type_hints(cls)


def _build(cls: type, body: dict[str, Any], where: str) -> Any:
    hints = _hints(cls)
    if set(body) != set(hints):
        raise SchemaError(f"{where}: fields {sorted(body)} are not {sorted(hints)}")
    return cls(**{name: _check(hint, body[name], f"{where}.{name}") for name, hint in hints.items()})


def _check(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in args:
            return None
        (inner,) = (arg for arg in args if arg is not type(None))
        return _check(inner, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise SchemaError(f"{where}: not a list")
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_check(args[0], item, f"{where}[]") for item in value)
        if len(value) != len(args):
            raise SchemaError(f"{where}: {len(value)} items, not {len(args)}")
        return tuple(_check(arg, item, f"{where}[]") for arg, item in zip(args, value, strict=True))
    if origin is dict:
        if not isinstance(value, dict):
            raise SchemaError(f"{where}: not an object")
        return {key: _check(args[1], item, f"{where}[{key!r}]") for key, item in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, dict):
            raise SchemaError(f"{where}: not an object")
        return _build(hint, value, where)
    if hint is float and type(value) is int and abs(value) < 1 << 53:
        return float(value)
    if type(value) is not hint:
        raise SchemaError(f"{where}: {type(value).__name__}, not {hint.__name__}")
    if hint is int and not MIN_INTEGER <= value <= MAX_INTEGER:
        raise SchemaError(f"{where}: an integer beyond 64 bits")
    if hint is str:  # Python accepts half a surrogate pair in a string; UTF-8 does not
        return value.encode("utf-8", "replace").decode()
    return value
