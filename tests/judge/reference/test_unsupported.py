"""Tests that a candidate need not support a situation in which the problem's own model fails or differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records.record import Status
from tests.judge.in_process import judged

MODEL = """
import torch
import torch.nn as nn
import torch.nn.functional as F

PRECISION = "10-bit"


class Viewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy.view(-1).mul(2).view(dy.shape)


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(24, 20)
        self.recurrent = nn.GRU(24, 5, batch_first=True)

    def forward(self, *inputs):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

#: What forward does, and its inputs.
PROBLEMS = {
    "half_precision_inside": (
        "with torch.autocast('cpu', torch.float16):\n            return self.layer(inputs[0]).float()",
        "torch.randn(64, 24)",
    ),
    "a_gradient_is_clamped": (
        "x = inputs[0] * 1\n        if x.requires_grad:\n            x.register_hook(lambda dx: dx.clamp(-1, 1))\n"
        "        return self.layer(x)",
        "torch.randn(9, 24)",
    ),
    "the_backward_views_its_cotangent": ("return Viewed.apply(self.layer(inputs[0]))", "torch.randn(9, 24)"),
    "a_gradient_within_forward": (
        "with torch.enable_grad():\n            x = inputs[0] if inputs[0].requires_grad else "
        "inputs[0].detach().requires_grad_()\n            energy = torch.tanh(self.layer(x)).sum()\n"
        "            return torch.autograd.grad(energy, x, create_graph=True)[0]",
        "torch.randn(9, 24)",
    ),
    "edges_between_two_kinds_of_nodes": (
        "x, (source, target) = inputs\n        return x.new_zeros(5, 24).index_add(0, target, x[source])",
        "torch.randn(40, 24), torch.stack([torch.randint(40, (80,)), torch.randint(5, (80,))])",
    ),
    "boxes_with_the_number_of_their_image": (
        "x, boxes = inputs\n        return x[boxes[:, 0].long()] * boxes[:, 1:].sum(1, keepdim=True)",
        "torch.randn(3, 24), torch.cat([torch.randint(3, (7, 1)).float(), 5 + 9 * torch.rand(7, 4)], 1)",
    ),
    "samples_in_the_order_of_their_lengths": (
        "packed = nn.utils.rnn.pack_padded_sequence(inputs[0], inputs[1], batch_first=True)\n"
        "        return nn.utils.rnn.pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)[0]",
        "torch.randn(4, 7, 24), torch.tensor([7, 5, 4, 2])",
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_copy_of_the_reference_passes(name: str, tmp_path: Path, home: Path) -> None:
    forward, inputs = PROBLEMS[name]
    problem, copy = (MODEL.format(name=made, forward=forward, inputs=inputs) for made in ("Model", "ModelNew"))
    record = judged(problem, copy, tmp_path, home)
    assert record.status is Status.PASSED, record.message
