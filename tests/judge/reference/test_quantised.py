"""Tests problems that return integers made of floating numbers, where rounding decides between two neighbours."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.project.problems import read_problem
from harness.records.record import Status
from tests.judge.in_process import evaluated

QUANTISED = "{name}(self.linear(x) / 0.01).clamp(-128, 127).to(torch.int8)"
PIXELS = "{name}(x.sigmoid() * 255).to(torch.uint8)"
SOURCE = """
import torch
import torch.nn as nn


class {kind}(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(128, 128)

    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("forward", [QUANTISED, PIXELS])
@pytest.mark.parametrize(
    ("name", "status"),
    [("torch.round", Status.PASSED), ("torch.floor", Status.WRONG_OUTPUT), ("1 + torch.round", Status.WRONG_OUTPUT)],
)
def test_rounding_excuses_a_neighbour_where_it_decides(
    forward: str, name: str, status: Status, tmp_path: Path, home: Path
) -> None:
    (tmp_path / "problem.py").write_text(SOURCE.format(kind="Model", forward=forward.format(name="torch.round")))
    (tmp_path / "answer.py").write_text(SOURCE.format(kind="ModelNew", forward=forward.format(name=name)))
    for draw in "5eed", "0dd5", "abcd":
        record = evaluated(read_problem(tmp_path / "problem.py"), tmp_path / "answer.py", home, draw * 8, "full")
        assert record.status is status, record.message
