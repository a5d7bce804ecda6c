"""Tests which constants of a case a solution reads from its own text."""

from __future__ import annotations

import pytest

from harness.project.excerpt import own_constants

CASE = {"batch_size": 3, "dim": 37}
SOLUTION = """
import torch
{constants}


def helper(x):
    return x.view({size}, -1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return helper(x)


def get_inputs():
    return [torch.randn(batch_size, dim)]
"""


@pytest.mark.parametrize(
    ("constants", "size", "found"),
    [
        ("batch_size = 4096", "batch_size", {"batch_size": 4096}),
        ("batch_size, dim = 4096, 64", "dim", {"dim": 64}),
        ("batch_size = 3", "batch_size", {}),
        ("batch_size = 4096", "x.shape[0]", {}),
        ("other = 4096", "other", {}),
        ("", "batch_size", {}),
        ("batch_size = 4096 +", "batch_size", {}),
    ],
)
def test_only_what_the_model_reads_with_another_value(constants: str, size: str, found: dict[str, int]) -> None:
    assert own_constants(SOLUTION.format(constants=constants, size=size), CASE) == found


def test_text_that_no_parser_takes_has_none() -> None:
    assert own_constants("batch_size = " + "(" * 5000 + "4" + ")" * 5000, CASE) == {}


def test_functions_that_call_one_another_in_a_long_row_are_followed() -> None:
    """A definition is looked at once; each look at all others would take the judge minutes."""
    row = "".join(f"def f{number}(): return f{number + 1}()\n" for number in range(20_000))
    text = SOLUTION.format(constants="batch_size = 4096\n" + row + "def f20000(): return batch_size", size="f0()")
    assert own_constants(text, CASE) == {"batch_size": 4096}


def test_a_text_that_takes_long_to_parse_has_none() -> None:
    fields = "f'" + "{a}" * 100_000 + "'"
    assert own_constants(SOLUTION.format(constants="batch_size = 4096", size="batch_size") + fields, CASE) == {}
