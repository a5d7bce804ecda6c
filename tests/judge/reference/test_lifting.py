"""Tests problems whose forward itself rounds to a lower precision: the exact reference leaves that out."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ProblemError
from harness.records.record import Status
from tests.judge.in_process import judged

SOURCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x, weight)
        return (x.bfloat16() @ weight.bfloat16().T).float()

    @staticmethod
    def backward(context, gradient):
        x, weight = (one.bfloat16() for one in context.saved_tensors)
        gradient = gradient.bfloat16()
        return (gradient @ weight).float(), (gradient.T @ x).float()


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


#: An int8 quantiser of rounded numbers, a threshold of rounded numbers, and what rounding leaves of a number.
CODES = "h = (x @ self.weight.T).bfloat16().float(); return (h / h.abs().amax(-1, True) * 127).round().to(torch.int8)"
THRESHOLD = "h = (x @ self.weight.T).bfloat16(); return torch.where(h > 1.0, h, -h).float()"
REST = "h = x @ self.weight.T; return h.bfloat16(), h - h.bfloat16().float()"
#: An inverse square root that starts from the bits of float32, the sign bit of a product, and an input's leading bits.
SQUARE_ROOT = """h = (x @ self.weight.T).detach().abs() + 0.5
        y = (0x5F3759DF - (h.view(torch.int32) >> 1)).view(torch.float32)
        return y * (1.5 - 0.5 * h * y * y)"""
SIGN_BIT = "return ((x @ self.weight.T).view(torch.int32) & 0x7FFFFFFF).view(torch.float32)"
LEADING_BITS = "return (x.view(torch.int32) & -65536).view(torch.float32)"
IN_BACKWARD = "return Linear.apply(x, self.weight)"


@pytest.mark.parametrize(
    ("problem", "answer", "status"),
    [
        (CHAIN, IN_FLOAT32, Status.PASSED),
        (CHAIN, CHAIN, Status.PASSED),
        (CHAIN, IN_FLOAT32.replace("F.gelu", "F.silu"), Status.WRONG_OUTPUT),
        (DEQUANTISED, DEQUANTISED_IN_FLOAT32, Status.PASSED),
        (DEQUANTISED, DEQUANTISED_IN_FLOAT32.replace("- 8", "- 7"), Status.WRONG_OUTPUT),
        (IN_BACKWARD, "return x @ self.weight.T", Status.PASSED),
        (IN_BACKWARD, IN_BACKWARD, Status.PASSED),
    ],
    ids=["fused", "copy", "another function", "dequantised", "another zero point", "in backward", "rounds in backward"],
)
def test_rounding_by_the_reference_s_own_choice_is_no_duty(
    problem: str, answer: str, status: Status, tmp_path: Path, home: Path
) -> None:
    record = judged(
        SOURCE.format(kind="Model", forward=problem), SOURCE.format(kind="ModelNew", forward=answer), tmp_path, home
    )
    assert record.status is status, record.message


@pytest.mark.parametrize(
    ("forward", "without"),
    [
        (BITS, "x @ self.weight.T"),
        (QUANTISED, "x @ self.weight.T"),
        (CODES, "(x @ self.weight.T * 40).round().to(torch.int8)"),
        (THRESHOLD, "(lambda h: torch.where(h > 1.1, h, -h))(x @ self.weight.T)"),
        (SQUARE_ROOT, "((x @ self.weight.T).detach().abs() + 0.5).rsqrt()"),
        (SIGN_BIT, "(x @ self.weight.T).detach()"),
        (LEADING_BITS, "x.detach() + 0"),
        (REST, "(x @ self.weight.T).bfloat16(), 0 * (x @ self.weight.T)"),
    ],
    ids=["bits", "8-bit floats", "codes", "threshold", "square root", "sign bit", "leading bits", "rest"],
)
def test_what_is_made_of_the_bits_of_a_low_precision_is_judged(
    forward: str, without: str, tmp_path: Path, home: Path
) -> None:
    copy, wrong = (SOURCE.format(kind="ModelNew", forward=one) for one in (forward, f"return {without}"))
    assert judged(SOURCE.format(kind="Model", forward=forward), copy, tmp_path, home).status is Status.PASSED
    assert judged(SOURCE.format(kind="Model", forward=forward), wrong, tmp_path, home).status is Status.WRONG_OUTPUT


def test_last_bits_that_rounding_decides_are_refused_with_a_remedy(tmp_path: Path, home: Path) -> None:
    forward = "return (x @ self.weight.T).view(torch.int32)"
    texts = (SOURCE.format(kind=kind, forward=forward) for kind in ("Model", "ModelNew"))
    with pytest.raises(ProblemError, match="last bits of a computed number"):
        judged(*texts, tmp_path, home)
