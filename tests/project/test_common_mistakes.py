# ruff: noqa: E501 - the table keeps one answer a line
"""Tests common mistakes of language models on the shipped problems, each with the honest form it resembles."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SOLUTION = '''
import torch
import torch.nn as nn
import torch.nn.functional as F


def normalised(x, weight, bias, groups, dims=(2, 3), by_group=False):
    """Group normalisation by hand; ``dims`` are what statistics run over, in (batch, groups, channels, pixels)."""
    parts = x.reshape(x.shape[0], groups, x.shape[1] // groups, -1)
    variance, mean = torch.var_mean(parts, dims, correction=0, keepdim=True)
    parts = (parts - mean) * torch.rsqrt(variance + 1e-5)
    if by_group:
        each = x.shape[1] // groups
        return (parts * weight[::each].view(groups, 1, 1) + bias[::each].view(groups, 1, 1)).reshape(x.shape)
    return (parts * weight.view(groups, -1, 1) + bias.view(groups, -1, 1)).reshape(x.shape)


class ModelNew(nn.Module):
    def __init__(self, {arguments}):
        super().__init__()
        {init}
        self.groups = num_groups

    def forward(self, x):
        return {forward}
'''


class Layers(NamedTuple):
    """A shipped problem, and how to construct its parameters."""

    problem: str
    arguments: str
    init: str


GROUP_NORM = Layers("group_norm", "num_features, num_groups", "self.gn = nn.GroupNorm(num_groups, num_features)")
HARDTANH = Layers(
    "gemm_bias_add_hardtanh_mish_group_norm",
    "in_features, out_features, bias_shape, num_groups",
    "self.gemm = nn.Linear(in_features, out_features); self.bias = nn.Parameter(torch.randn(bias_shape)); "
    "self.groupnorm = nn.GroupNorm(num_groups, out_features)",
)
MINIMUM = Layers(
    "gemm_group_norm_min_bias_add",
    "in_features, out_features, num_groups, bias_shape",
    "self.gemm = nn.Linear(in_features, out_features); self.group_norm = nn.GroupNorm(num_groups, out_features); "
    "self.bias = nn.Parameter(torch.randn(bias_shape))",
)
CONVOLUTION = Layers(
    "conv_transpose2d_gelu_group_norm",
    "in_channels, out_channels, kernel_size, stride, groups, num_groups",
    "self.conv_transpose = nn.ConvTranspose2d(in_channels, out_channels, kernel_size, stride=stride); "
    "self.group_norm = nn.GroupNorm(num_groups, out_channels)",
)


class Answer(NamedTuple):
    """A candidate's forward, and the status that it must get."""

    name: str
    layers: Layers
    forward: str
    status: str
    words: str = ""


ANSWERS = [
    Answer("group_norm", GROUP_NORM, "normalised(x, self.gn.weight, self.gn.bias, self.groups)", "PASSED"),
    Answer("statistics_over_the_batch", GROUP_NORM, "normalised(x, self.gn.weight, self.gn.bias, self.groups, (0, 2, 3))", "WRONG_OUTPUT"),
    Answer("gamma_by_group", GROUP_NORM, "normalised(x, self.gn.weight, self.gn.bias, self.groups, by_group=True)", "WRONG_OUTPUT"),
    Answer("hardtanh", HARDTANH, "self.groupnorm(F.mish((self.gemm(x) + self.bias).clamp(-1, 1)))", "PASSED"),
    Answer("hardtanh_0_to_20", HARDTANH, "self.groupnorm(F.mish(F.hardtanh(self.gemm(x) + self.bias, 0, 20)))", "WRONG_OUTPUT"),
    Answer("one_bias_left_out", HARDTANH, "self.groupnorm(F.mish(F.hardtanh(self.gemm(x))))", "WRONG_OUTPUT"),
    Answer("minimum", MINIMUM, "self.group_norm(self.gemm(x)).min(1, keepdim=True).values + self.bias", "PASSED"),
    Answer("squeezed_broadcast", MINIMUM, "self.group_norm(self.gemm(x)).min(1, keepdim=True).values + self.bias.view(1, -1)", "WRONG_OUTPUT", "has shape [5, 21], expected [1, 21, 5, 1]"),
    Answer("amin", MINIMUM, "self.group_norm(self.gemm(x)).amin(1, keepdim=True) + self.bias", "PASSED"),
    Answer("statistics_over_all_samples", MINIMUM, "normalised(self.gemm(x), self.group_norm.weight, self.group_norm.bias, self.groups, (0, 2, 3)).min(1, keepdim=True).values + self.bias", "WRONG_OUTPUT"),
    Answer("gelu", CONVOLUTION, "(lambda z: self.group_norm(0.5 * z * (1 + torch.erf(z * 2 ** -0.5))))(self.conv_transpose(x))", "PASSED"),
    Answer("gelu_in_tanh_form", CONVOLUTION, "self.group_norm(F.gelu(self.conv_transpose(x), approximate='tanh'))", "WRONG_OUTPUT", "another cause"),
    Answer("gelu_by_sigmoid", CONVOLUTION, "(lambda z: self.group_norm(z * torch.sigmoid(1.702 * z)))(self.conv_transpose(x))", "WRONG_OUTPUT"),
    Answer("gamma_of_a_group_of_channels", CONVOLUTION, "normalised(F.gelu(self.conv_transpose(x)), self.group_norm.weight, self.group_norm.bias, self.groups, by_group=True)", "WRONG_OUTPUT"),
]  # fmt: skip


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, harness: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """The record of every answer, by its name; one command a problem."""
    folder = tmp_path_factory.mktemp("answers")
    for answer in ANSWERS:
        text = SOLUTION.replace("{arguments}", answer.layers.arguments).replace("{init}", answer.layers.init)
        (folder / f"{answer.name}.py").write_text(text.replace("{forward}", answer.forward))

    def evaluate(layers: Layers) -> dict[str, dict[str, Any]]:
        names = [answer.name for answer in ANSWERS if answer.layers is layers]
        # GELU's tanh form is little beyond the budget: under some draws the gradient says so first.
        options = ("--problem", layers.problem, "--case", "odd", "--device", "cpu", "--json", "--seed", "1")
        ran = harness("evaluate", *(folder / f"{name}.py" for name in names), *options)
        return {Path(row["solution"]).stem: row for row in ran.rows}

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(evaluate, (GROUP_NORM, HARDTANH, MINIMUM, CONVOLUTION)))
    return {name: row for rows in found for name, row in rows.items()}


@pytest.mark.parametrize("answer", [pytest.param(answer, id=answer.name) for answer in ANSWERS])
def test_an_answer_gets_its_status(answer: Answer, rows: dict[str, dict[str, Any]]) -> None:
    row = rows[answer.name]
    assert Path(row["solution"]).stem == answer.name
    assert row["status"] == answer.status, row["message"]
    assert answer.words in row["message"]
