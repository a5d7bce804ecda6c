"""Decomposes a forward's result into its tensors, in order, and a list of comparable parts.

Sequences and dicts may be nested. The functions read them with the methods of ``tuple``, ``list``
and ``dict`` themselves. So a named tuple counts as a sequence, and no code of a subclass runs. The
parts of a dict follow the order of its keys, since the order of insertion means nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.system.text import shortened
from harness.wire.replies import OutputPart

MAX_DEPTH, MAX_PARTS = 16, 4096
TOO_MUCH = f"forward's result is nested deeper than {MAX_DEPTH}, or has more than {MAX_PARTS} parts"
#: The limit for a string that the candidate returns, and for all keys of a dict together. No honest
#: result is longer.
MAX_CHARACTERS = 1000
#: The limit for the part of a message that describes one part.
MAX_WORDS = 200
ROOT = "output"
TENSOR, SEQUENCE, DICT, VALUE = "tensor", "sequence", "dict", "value"


class Unstructured(ValueError):
    """The error for a result that is too large or too deeply nested."""


def taken_apart(result: Any) -> tuple[tuple[OutputPart, ...], list[torch.Tensor]]:
    """Decomposes a result into its parts and its tensors.

    Returns:
        Every part, each before the parts inside it, and the tensors among them in the same order.

    Raises:
        Unstructured: The result has too many parts, or they are nested too deeply.
    """
    parts: list[OutputPart] = []
    tensors: list[torch.Tensor] = []
    _take(result, ROOT, 0, parts, tensors)
    return tuple(parts), tensors


def tensors_of(result: Any, depth: int = 0) -> list[torch.Tensor]:
    """Returns the tensors of a result, in the order of ``taken_apart``.

    The function looks at nothing else, because timed calls use it. It also returns tensors of a
    subclass.

    Args:
        result: The value that a forward returned.
        depth: The nesting depth of ``result``.

    Raises:
        Unstructured: The result is nested too deeply.
    """
    if isinstance(result, torch.Tensor):
        return [result]
    if depth > MAX_DEPTH:
        raise Unstructured(TOO_MUCH)
    return [tensor for _, item in _items(result) or () for tensor in tensors_of(item, depth + 1)]


def paths_of(parts: tuple[OutputPart, ...]) -> list[str]:
    """Returns the paths of the tensors: ``output``, ``output[1]``, ``output.attention[0]``."""
    return [part.path for part in parts if part.kind == TENSOR]


def strange_parts(parts: tuple[OutputPart, ...]) -> list[OutputPart]:
    """Returns the parts whose type cannot be compared."""
    return [part for part in parts if part.kind not in (TENSOR, SEQUENCE, DICT, VALUE)]


def difference(expected: tuple[OutputPart, ...], received: tuple[OutputPart, ...]) -> str:
    """Describes the first part in which a result differs from the expected form.

    Empty if none does.

    Args:
        expected: The parts of the reference's result.
        received: The parts of the candidate's result, as its own process reports them.
    """
    for number, wanted in enumerate(expected):
        found = received[number] if number < len(received) else OutputPart("", "nothing", "")
        if found != wanted:
            verb, other = ("returned", "returns") if wanted.path == ROOT else (f"has {wanted.path}:", "has")
            return f"forward {verb} {_words(found)}, where the reference {other} {_words(wanted)}"
    return "forward returned more than the reference" if len(received) > len(expected) else ""


def _words(part: OutputPart) -> str:
    value = shortened(part.value, MAX_WORDS)
    known = {
        TENSOR: "a tensor",
        SEQUENCE: f"a sequence of {value}",
        DICT: f"a dict with the keys {value}" if value else "an empty dict",
        VALUE: value,
    }
    return known.get(part.kind, shortened(part.kind, MAX_WORDS))


def _take(value: Any, path: str, depth: int, parts: list[OutputPart], tensors: list[torch.Tensor]) -> None:
    if depth > MAX_DEPTH or len(parts) == MAX_PARTS:
        raise Unstructured(TOO_MUCH)
    kind = type(value)
    if kind in (torch.Tensor, torch.nn.Parameter):
        parts.append(OutputPart(path, TENSOR, ""))
        tensors.append(value)
        return
    items = _items(value)
    if items is None:
        parts.append(_leaf(path, value))
        return
    is_dict = issubclass(kind, dict)
    content = ", ".join(repr(key) for key, _ in items) if is_dict else str(len(items))
    if len(content) > MAX_CHARACTERS:
        parts.append(OutputPart(path, f"a dict with keys of {len(content)} characters", ""))
        return
    parts.append(OutputPart(path, DICT if is_dict else SEQUENCE, content))
    for key, item in items:
        if is_dict:
            inner = f"{path}.{key}" if key.isidentifier() else f"{path}[{key!r}]"
        else:  # a single tensor in a sequence has the same path as a bare tensor
            inner = path if len(items) == 1 and path == ROOT else f"{path}[{key}]"
        _take(item, inner, depth + 1, parts, tensors)


def _items(value: Any) -> list[tuple[Any, Any]] | None:
    """Returns the items of a sequence with indices, or of a dict with its keys (strings only).

    Returns:
        The pairs; None for any other value.
    """
    kind = type(value)
    if issubclass(kind, tuple):
        return list(enumerate(tuple.__iter__(value)))
    if issubclass(kind, list):
        return list(enumerate(list.__iter__(value)))
    if issubclass(kind, dict):
        items = list(dict.items(value))
        if all(type(key) is str for key, _ in items):
            return sorted(items, key=lambda item: item[0])
    return None


def _leaf(path: str, value: Any) -> OutputPart:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        text = repr(value)
        return (
            OutputPart(path, VALUE, text)
            if len(text) <= MAX_CHARACTERS
            else OutputPart(path, f"a long {kind.__name__}", "")
        )
    if issubclass(kind, dict):
        return OutputPart(path, "a dict with keys that are not strings", "")
    return OutputPart(path, shortened(kind.__name__, MAX_WORDS), "")
