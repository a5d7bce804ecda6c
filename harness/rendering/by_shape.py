"""Joins renderings of a template to one solution, in which the shapes of a call's inputs choose the kernels."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.errors import TemplateError

Shapes = tuple[tuple[int, ...], ...]

_HEAD = '''\
"""One solution for several shapes: a call takes the kernels of the case whose inputs are nearest in shape.

{lines}
"""

import functools
import math

import torch

'''

_TAIL = '''

# Shapes of a case's input tensors, and what makes the module for them.
CASES = (
{rows}
)


def distance(shapes, others):
    """Returns the distance of two calls' shapes in octaves, above 1000 if numbers of dimensions differ."""
    if [len(shape) for shape in shapes] == [len(shape) for shape in others]:
        extents = zip(sum(shapes, ()), sum(others, ()), strict=True)
        return sum(abs(math.log2((one + 1) / (other + 1))) for one, other in extents)
    one, other = (1 + sum(math.prod(shape) for shape in call) for call in (shapes, others))
    return 1000 + abs(math.log2(one / other))


@functools.cache
def module_for(shapes):
    """The module's class for inputs of these shapes; its kernels are compiled when they are first asked for."""
    return min(CASES, key=lambda case: distance(shapes, case[0]))[1]()


class ModelNew(setting_1()):
    """The module of the first case; a forward is that of the nearest case."""

    def forward(self, *inputs):
        """Compute as the nearest case does."""
        shapes = tuple(tuple(one.shape) for one in inputs if isinstance(one, torch.Tensor))
        return module_for(shapes).forward(self, *inputs)
'''


@dataclass(frozen=True)
class ShapedBody:
    """A template's rendering for one case.

    Attributes:
        shapes: Shapes of the case's input tensors.
        body: The rendered text, without the stamp.
        about: The case, its setting and the record that measured it, in words.
    """

    shapes: Shapes
    body: str
    about: str


def joined(cases: Sequence[ShapedBody]) -> str:
    """Returns the text of one solution for all cases, without a stamp.

    Each distinct rendering becomes a function, so that names do not collide. Strings stay as they are.
    All renderings must hold the same parameters and buffers in ``ModelNew``. ``forward`` may call no
    other method of it: those are the first rendering's.

    Raises:
        TemplateError: A rendering cannot stand in a function.
    """
    bodies = list(dict.fromkeys(case.body for case in cases))
    parts = [_HEAD.format(lines="\n".join(f"- {_in_docstring(case.about)}" for case in cases))]
    for number, body in enumerate(bodies, start=1):
        parts.append(f"\n@functools.cache\ndef setting_{number}():\n{_indented(body)}    return ModelNew\n")
    makers = [f"setting_{1 + bodies.index(case.body)}" for case in cases]
    rows = "\n".join(f"    ({case.shapes!r}, {maker})," for case, maker in zip(cases, makers, strict=True))
    return "\n".join(parts) + _TAIL.format(rows=rows)


def _in_docstring(words: str) -> str:
    return words.replace("\\", "/").replace('"', "'")


def _indented(body: str) -> str:
    """Returns a module's text as the body of a function; lines within a string keep their place.

    Raises:
        TemplateError: The text is not Python, or it means something else in a function.
    """
    try:
        for node in ast.walk(ast.parse(body)):
            if isinstance(node, ast.Global) or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
                words = "global" if isinstance(node, ast.Global) else "from __future__"
                raise TemplateError(
                    f"line {node.lineno} of the rendered file: {words!r} has another meaning in a function, so that "
                    "renderings for several cases cannot be joined"
                )
        inside = set(_lines_inside_strings(body))
    except (SyntaxError, tokenize.TokenError, ValueError) as error:
        raise TemplateError(f"the rendered file is not Python: {error}") from None
    lines = io.StringIO(body).readlines()
    return "".join(
        line if number in inside or not line.strip() else f"    {line}" for number, line in enumerate(lines, start=1)
    )


def _lines_inside_strings(body: str) -> Iterator[int]:
    """Yields the numbers of the lines that begin within a string."""
    begun: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(body).readline):
        name = tokenize.tok_name[token.type]
        if name == "STRING":
            yield from range(token.start[0] + 1, token.end[0] + 1)
        elif name == "FSTRING_START":
            begun.append(token.start[0])
        elif name == "FSTRING_END":
            yield from range(begun.pop() + 1, token.end[0] + 1)
