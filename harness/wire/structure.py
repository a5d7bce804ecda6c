"""What a forward returned, taken apart: its tensors in order, and all else as a list of parts that can be compared.

Sequences and dicts may be nested. They are read by the methods of ``tuple``, ``list`` and ``dict`` themselves, so that
a named tuple is a sequence like any other, and no code of a subclass runs. The parts of a dict are in the order of
their keys: the order in which they were put in says nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.system.text import shortened
from harness.wire.messages import OutputPart

MAX_DEPTH, MAX_PARTS = 16, 4096
TOO_MUCH = f"what forward returned is nested deeper than {MAX_DEPTH}, or has over {MAX_PARTS} parts"
#: Of a string that is returned as it is, and of a dict's keys together; what is longer is nobody's result.
MAX_CHARACTERS = 1000
#: Of what a message says of a part.
MAX_WORDS = 200
ROOT = "output"
TENSOR, SEQUENCE, DICT, VALUE = "tensor", "sequence", "dict", "value"


class Unstructured(ValueError):
    """A result that is too large or too deep to be taken apart; the message says so."""


def taken_apart(result: Any) -> tuple[tuple[OutputPart, ...], list[torch.Tensor]]:
    """Every part of a result, each one before those inside it, and the tensors among them in the same order.

    Raises:
        Unstructured: There are too many, or they are nested too deeply.
    """
    parts: list[OutputPart] = []
    tensors: list[torch.Tensor] = []
    _take(result, ROOT, 0, parts, tensors)
    return tuple(parts), tensors


def tensors_of(result: Any, depth: int = 0) -> list[torch.Tensor]:
    """The tensors alone, in the order of ``taken_apart``; nothing else is looked at, since this is done in timed calls.

    A tensor of another class than torch's own is one here.

    Args:
        result: What was returned.
        depth: In how many others it lies.

    Raises:
        Unstructured: It is nested too deeply.
    """
    if isinstance(result, torch.Tensor):
        return [result]
    if depth > MAX_DEPTH:
        raise Unstructured(TOO_MUCH)
    return [tensor for _, item in _items(result) or () for tensor in tensors_of(item, depth + 1)]


def paths_of(parts: tuple[OutputPart, ...]) -> list[str]:
    """The paths of the tensors: ``output``, ``output[1]``, ``output.attention[0]``."""
    return [part.path for part in parts if part.kind == TENSOR]


def strange_parts(parts: tuple[OutputPart, ...]) -> list[OutputPart]:
    """The parts that nothing is known of: of another type than those that can be compared."""
    return [part for part in parts if part.kind not in (TENSOR, SEQUENCE, DICT, VALUE)]


def difference(expected: tuple[OutputPart, ...], received: tuple[OutputPart, ...]) -> str:
    """In what a result is not of the expected form: the first part that differs, in words; empty where none does.

    Args:
        expected: The reference's.
        received: The candidate's, by its own process's word.
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
        else:  # one tensor in a sequence is called as a tensor alone is
            inner = path if len(items) == 1 and path == ROOT else f"{path}[{key}]"
        _take(item, inner, depth + 1, parts, tensors)


def _items(value: Any) -> list[tuple[Any, Any]] | None:
    """What a sequence or a dict with strings for keys holds, with index or key; None for everything else."""
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
        return OutputPart(path, "a dict with keys that are no strings", "")
    return OutputPart(path, shortened(kind.__name__, MAX_WORDS), "")
