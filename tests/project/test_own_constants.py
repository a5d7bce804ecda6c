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
