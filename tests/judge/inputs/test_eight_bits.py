"""Tests problems with 8-bit floats as inputs and weights: numbers that torch computes nothing with."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records.record import Status
from tests.judge.in_process import judged

SOURCE = """
import torch
import torch.nn as nn


class {kind}(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", (torch.randn(48, 64) * 0.3).to(torch.float8_e4m3fn))
        self.scale = nn.Parameter(torch.rand(48) + 0.5)

    def forward(self, x, scale):
        {forward}


def get_inputs():
    return [(torch.randn(32, 64) * 2).to(torch.float8_{form}), torch.rand(32, 1) + 0.5]


def get_init_inputs():
    return []
"""
PRODUCT = "return (x.to(torch.bfloat16) @ self.codes.to(torch.bfloat16).T).float() * scale * self.scale"
IN_FLOAT32 = "return (x.float() @ self.codes.float().T) * scale * self.scale"
QUANTISED = "return ({}).to(torch.float8_e4m3fn).float()".format(PRODUCT.removeprefix("return "))


@pytest.mark.parametrize("form", ["e4m3fn", "e5m2"])
@pytest.mark.parametrize(
    ("problem", "answer", "status"),
    [
        (PRODUCT, PRODUCT, Status.PASSED),
        (PRODUCT, IN_FLOAT32, Status.PASSED),
        (PRODUCT, IN_FLOAT32.replace("x.float()", "x.view(torch.uint8).float()"), Status.WRONG_OUTPUT),
        (QUANTISED, QUANTISED, Status.PASSED),
        (QUANTISED, QUANTISED.replace("* scale *", "*"), Status.WRONG_OUTPUT),
    ],
    ids=["copy", "float32", "bytes", "quantised copy", "without a scale"],
)
def test_the_numbers_count_and_not_the_bytes(
    problem: str, answer: str, status: Status, form: str, tmp_path: Path, home: Path
) -> None:
    texts = (
        SOURCE.format(kind=kind, forward=one, form=form) for kind, one in (("Model", problem), ("ModelNew", answer))
    )
    record = judged(*texts, tmp_path, home)
    assert record.status is status, record.message
