"""Tests joining renderings for several shapes to one solution."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.errors import TemplateError
from harness.rendering.by_shape import ShapedBody, joined

BODY = '''"""A module.

Its second line.
"""

import torch

TEXT = r"""
first {number}
  second
"""
VALUE = len(TEXT) + \\
    {number}


class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y=None):
        """Return."""
        return TEXT, VALUE, self.scale
'''


def made(*cases: tuple[tuple[tuple[int, ...], ...], int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    text = joined([ShapedBody(shapes, BODY.replace("{number}", str(number)), "case") for shapes, number in cases])
    exec(compile(text, "joined.py", "exec"), found)
    return found


def test_strings_keep_their_lines_and_names_do_not_collide() -> None:
    solution = made((((4, 8),), 1), (((4, 8192),), 2))
    module = solution["ModelNew"](3.0)
    assert module(torch.empty(4, 8)) == ("\nfirst 1\n  second\n", 19, 3.0)
    assert module(torch.empty(4, 4096)) == ("\nfirst 2\n  second\n", 20, 3.0)
    assert module(torch.empty(7)) == ("\nfirst 1\n  second\n", 19, 3.0)  # another rank: by the number of elements
    assert module(torch.empty(0, 8))[1] == 19


def test_two_cases_with_one_setting_share_it_and_all_inputs_count() -> None:
    solution = made((((4,), (2,)), 1), (((4,), (99,)), 2), (((64,), (2,)), 1))
    assert "setting_3" not in solution
    module = solution["ModelNew"](1.0)
    assert [module(torch.empty(4), torch.empty(size))[1] for size in (3, 60)] == [19, 20]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("from __future__ import annotations\n", "'from __future__' has another meaning"),
        ("def f():\n    global x\n    x = 1\n", "line 2 of the rendered file: 'global'"),
        ("def f(:\n", "is not Python"),
        ("x = '''", "is not Python"),
    ],
)
def test_what_cannot_stand_in_a_function_is_told(body: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        joined([ShapedBody(((4,),), body, "case")])
