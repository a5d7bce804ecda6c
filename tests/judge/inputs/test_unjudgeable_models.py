"""Tests that a model which the harness cannot judge is refused with what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ProblemError
from tests.judge.in_process import judged

PROBLEM = """
import threading
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {layer}

    def forward(self, x):
        return {result}


def get_inputs():
    return [{value}]


def get_init_inputs():
    return []
"""
FLOATS = "torch.randn(5, 9)"


@pytest.mark.parametrize(
    ("layer", "result", "value", "words"),
    [
        (
            "self.layer = nn.Embedding(7, 9, sparse=True)",
            "self.layer(x)",
            "torch.randint(7, (5,))",
            "gradient of layer.weight has layout torch.sparse_coo.*sparse=False",
        ),
        (
            "self.layer = nn.Linear(9, 9); self.half = self.layer.weight / 2",
            "self.layer(x)",
            FLOATS,
            "copy.deepcopy cannot copy Model.*parametrizations.weight_norm",
        ),
        (
            "self.layer = nn.Linear(9, 9); self.lock = threading.Lock()",
            "self.layer(x)",
            FLOATS,
            "copy.deepcopy cannot copy Model.*keep no lock",
        ),
        (
            "self.weight = nn.Parameter(torch.randn(9, dtype=torch.complex64))",
            "(x * self.weight).abs()",
            FLOATS,
            "the parameter weight is complex.*view_as_complex",
        ),
    ],
)
def test_the_message_says_what_to_do(
    layer: str, result: str, value: str, words: str, tmp_path: Path, home: Path
) -> None:
    problem = PROBLEM.format(layer=layer, result=result, value=value)
    with pytest.raises(ProblemError, match=words):
        judged(problem, problem.replace("Model(", "ModelNew("), tmp_path, home)
