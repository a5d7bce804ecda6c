"""Descriptions of the tensors and arguments that messages refer to.

The tensors themselves lie in the arena (``arena``); a message only names their place and form.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Region:
    """The place and the form of a dense tensor in the arena.

    Attributes:
        offset: The first byte, a multiple of 256.
        shape: The tensor's shape.
        dtype: The dtype's name without prefix, such as ``float32``.
        order: The dimensions from the largest stride to the smallest; empty for row-major.
    """

    offset: int
    shape: tuple[int, ...]
    dtype: str
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Value:
    """An argument: either a tensor in the arena or the JSON encoding of a plain Python value."""

    region: Region | None
    plain: str | None


@dataclass(frozen=True)
class StateTensor:
    """A parameter or buffer of the candidate's instance.

    Attributes:
        name: The dotted name, as in ``state_dict``.
        is_parameter: True for a parameter, False for a buffer.
        shape: The tensor's shape.
        dtype: The tensor's dtype.
        fill: The one value that all elements have; None if they differ.
    """

    name: str
    is_parameter: bool
    shape: tuple[int, ...]
    dtype: str
    fill: float | None


def input_key(position: int) -> str:
    """Returns the name that ``Gradients`` gives to the input at a position.

    It cannot clash with a parameter, since no parameter name has a colon.
    """
    return f"input:{position}"
