"""Tests problems whose forward itself rounds to a lower precision: the exact reference leaves that out."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records.record import Status
from tests.judge.in_process import judged

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class {kind}(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(48, 64) * 0.1)
        self.register_buffer("codes", torch.randint(0, 16, (64, 48), dtype=torch.uint8))

    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []
"""
#: A chain that rounds after each step, and the same rounded nowhere.
CHAIN = (
    "h = F.gelu(x.bfloat16() @ self.weight.bfloat16().T); h = h * h.sigmoid(); return (h - h.mean(-1, True)).float()"
)
IN_FLOAT32 = "h = F.gelu(x @ self.weight.T); h = h * h.sigmoid(); return h - h.mean(-1, True)"
#: Weights of 4 bits, brought to the precision of the activations.
DEQUANTISED = "return x.half() @ ((self.codes.half() - 8) * 0.1) + torch.tensor(1, dtype=torch.half, device=x.device)"
DEQUANTISED_IN_FLOAT32 = "return (x @ ((self.codes.float() - 8) * 0.1) + 1).half()"
BITS = "h = (x @ self.weight.T).bfloat16(); return h.float() + (h.detach().view(torch.int16) & 1)"
QUANTISED = "h = x @ self.weight.T; return h + (h.to(torch.float8_e4m3fn).float() - h).detach()"


@pytest.mark.parametrize(
    ("problem", "answer", "status"),
    [
        (CHAIN, IN_FLOAT32, Status.PASSED),
        (CHAIN, CHAIN, Status.PASSED),
        (CHAIN, IN_FLOAT32.replace("F.gelu", "F.silu"), Status.WRONG_OUTPUT),
        (DEQUANTISED, DEQUANTISED_IN_FLOAT32, Status.PASSED),
        (DEQUANTISED, DEQUANTISED_IN_FLOAT32.replace("- 8", "- 7"), Status.WRONG_OUTPUT),
    ],
    ids=["fused", "copy", "another function", "dequantised", "another zero point"],
)
def test_rounding_by_the_reference_s_own_choice_is_no_duty(
    problem: str, answer: str, status: Status, tmp_path: Path, home: Path
) -> None:
    record = judged(
        SOURCE.format(kind="Model", forward=problem), SOURCE.format(kind="ModelNew", forward=answer), tmp_path, home
    )
    assert record.status is status, record.message


@pytest.mark.parametrize(("forward", "without"), [(BITS, "x @ self.weight.T"), (QUANTISED, "x @ self.weight.T")])
def test_what_is_made_of_the_bits_of_a_low_precision_is_judged(
    forward: str, without: str, tmp_path: Path, home: Path
) -> None:
    copy, wrong = (SOURCE.format(kind="ModelNew", forward=one) for one in (forward, f"return {without}"))
    assert judged(SOURCE.format(kind="Model", forward=forward), copy, tmp_path, home).status is Status.PASSED
    assert judged(SOURCE.format(kind="Model", forward=forward), wrong, tmp_path, home).status is Status.WRONG_OUTPUT
