# ruff: noqa: E501 - the table keeps one twin a line
"""Tests that lower precision classes allow rounded operands of products, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.judge.reference.equivalence import Errors
from harness.judge.reference.reduced_precision import operands_floors

PROBLEM = '''
import torch
import torch.nn as nn
import torch.nn.functional as F

PRECISION = "{precision}"


class Model(nn.Module):
    """{name}"""

    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
'''

# Products as tensor cores compute them: operands rounded in every direction, sums in float32.
SOLUTION = '''
import torch
import torch.nn as nn
import torch.nn.functional as F


def rounded(tensor, bits):
    """To the nearest with so many mantissa bits."""
    surplus = 23 - bits
    return ((tensor.contiguous().view(torch.int32) + (1 << surplus - 1)) & -(1 << surplus)).view(torch.float32)


class Product(torch.autograd.Function):
    """Any differentiable product of two tensors."""

    @staticmethod
    def forward(ctx, multiply, bits, left, right):
        ctx.multiply, ctx.bits = multiply, bits
        ctx.save_for_backward(left, right)
        return multiply(rounded(left, bits), rounded(right, bits))

    @staticmethod
    def backward(ctx, dy):
        with torch.enable_grad():
            operands = [rounded(one, ctx.bits).requires_grad_() for one in ctx.saved_tensors]
            product = ctx.multiply(*operands)
        return None, None, *torch.autograd.grad(product, operands, rounded(dy, ctx.bits))


class ApproximateGradient(torch.autograd.Function):
    """GELU, with the derivative of its tanh form."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    def backward(ctx, dy):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            y = F.gelu(x, approximate="tanh")
        return torch.autograd.grad(y, x, dy)[0]


def times(left, right, bits=10):
    return Product.apply(torch.matmul, bits, left, right)


def convolved(layer, x, bits=10):
    flat = Product.apply(lambda x, weight: F.conv_transpose2d(x, weight, stride=layer.stride), bits, x, layer.weight)
    return flat + layer.bias[:, None, None]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        return {forward}
'''


class Layers(NamedTuple):
    """A problem that multiplies."""

    name: str
    init: str
    forward: str
    inputs: str


CONVOLUTION = Layers(
    "convolution",
    "self.up = nn.ConvTranspose2d(6, 12, 3); self.norm = nn.GroupNorm(3, 12)",
    "self.norm(F.gelu(self.up(x)))",
    "torch.rand(5, 6, 9, 7)",
)
CHAIN = Layers(
    "chain",
    "self.first = nn.Linear(40, 64); self.second = nn.Linear(64, 24)",
    "self.second(F.gelu(self.first(x)))",
    "torch.randn(9, 40)",
)
ATTENTION = Layers(
    "attention",
    "self.q = nn.Linear(16, 16, bias=False); self.k = nn.Linear(16, 16, bias=False)",
    "F.scaled_dot_product_attention(self.q(x), self.k(x), x)",
    "torch.randn(3, 8, 16)",
)
HALVES = Layers(
    "halves",
    "self.layer = nn.Linear(32, 20).half()",
    "F.gelu(self.layer(x))",
    "torch.randn(9, 32).half()",
)
CLIPPED = Layers("clipped", "self.layer = nn.Linear(32, 20)", "self.layer(x).clamp(-0.5, 0.5)", "torch.randn(9, 32)")

#: What rounding the product changes is a small part of the output.
BIASED = Layers("biased", "self.layer = nn.Linear(64, 20)", "self.layer(x) + 3", "torch.randn(9, 64)")
PRODUCT_OF = "times(x, self.layer.weight.t(), {bits}) + self.layer.bias + 3"
WITHOUT_PRODUCT = Layers("smooth", "pass", "torch.tanh(x)", "torch.randn(9, 64)")


class Twin(NamedTuple):
    """A candidate, and what it must get."""

    name: str
    layers: Layers
    forward: str
    status: str
    words: str = ""
    precision: str = "10-bit"


TWINS = [
    Twin("convolution_as_it_is", CONVOLUTION, CONVOLUTION.forward, "PASSED"),
    Twin("convolution_10_bits", CONVOLUTION, "self.norm(F.gelu(convolved(self.up, x)))", "PASSED"),
    Twin("convolution_7_bits", CONVOLUTION, "self.norm(F.gelu(convolved(self.up, x, 7)))", "WRONG_OUTPUT", "7-bit"),
    Twin("convolution_7_bits_allowed", CONVOLUTION, "self.norm(F.gelu(convolved(self.up, x, 7)))", "PASSED", "", "7-bit"),
    Twin("tanh_form", CONVOLUTION, "self.norm(F.gelu(self.up(x), approximate='tanh'))", "WRONG_OUTPUT", "another cause"),
    Twin("tanh_form_10_bits", CONVOLUTION, "self.norm(F.gelu(convolved(self.up, x), approximate='tanh'))", "WRONG_OUTPUT", "another cause"),
    Twin("tanh_form_7_bits_allowed", CONVOLUTION, "self.norm(F.gelu(convolved(self.up, x, 7), approximate='tanh'))", "WRONG_OUTPUT", "another cause", "7-bit"),
    Twin("tanh_gradient_10_bits", CONVOLUTION, "self.norm(ApproximateGradient.apply(convolved(self.up, x)))", "WRONG_GRADIENT", "gradient of up.bias"),
    Twin("chain_as_it_is", CHAIN, CHAIN.forward, "PASSED"),
    Twin("chain_10_bits", CHAIN, "times(F.gelu(times(x, self.first.weight.t()) + self.first.bias), self.second.weight.t()) + self.second.bias", "PASSED"),
    Twin("attention_10_bits", ATTENTION, "times(torch.softmax(times(times(x, self.q.weight.t()), times(x, self.k.weight.t()).mT) / 4, -1), x)", "PASSED"),
    Twin("halves_as_it_is", HALVES, HALVES.forward, "PASSED"),
    Twin("halves_in_float", HALVES, "F.gelu(F.linear(x.float(), self.layer.weight.float(), self.layer.bias.float())).half()", "PASSED"),
    Twin("clipped_10_bits", CLIPPED, "(times(x, self.layer.weight.t()) + self.layer.bias).clamp(-0.5, 0.5)", "PASSED"),
]  # fmt: skip


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, harness: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """The record of every twin, by its name; one command a problem and class."""
    folder = tmp_path_factory.mktemp("twins")

    def evaluate(problem_of: tuple[Layers, str]) -> dict[str, dict[str, Any]]:
        layers, precision = problem_of
        problem = folder / f"{layers.name}_{precision}_problem.py"
        problem.write_text(PROBLEM.format(precision=precision, **layers._asdict()))
        same = [twin for twin in TWINS if (twin.layers, twin.precision) == (layers, precision)]
        for twin in same:
            text = SOLUTION.replace("{init}", layers.init).replace("{forward}", twin.forward)
            (folder / f"{twin.name}.py").write_text(text)
        paths = [folder / f"{twin.name}.py" for twin in same]
        # Where an error is small beside its budget, as that of the gradient's tanh form, draws decide its verdict.
        ran = harness("evaluate", *paths, "--problem", problem, "--device", "cpu", "--seed", "3" * 32, "--json")
        return dict(zip((twin.name for twin in same), ran.rows, strict=True))

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(evaluate, dict.fromkeys((twin.layers, twin.precision) for twin in TWINS)))
    return {name: row for rows in found for name, row in rows.items()}


@pytest.mark.parametrize("twin", [pytest.param(twin, id=twin.name) for twin in TWINS])
def test_twin(twin: Twin, rows: dict[str, dict[str, Any]]) -> None:
    row = rows[twin.name]
    assert Path(row["solution"]).stem == twin.name
    assert row["status"] == twin.status, row["message"]
    assert twin.words in row["message"]


@pytest.mark.parametrize(("name", "precision"), [("chain_as_it_is", "10-bit"), ("convolution_7_bits_allowed", "7-bit")])
def test_what_rounding_changes_is_recorded(name: str, precision: str, rows: dict[str, dict[str, Any]]) -> None:
    row = rows[name]
    assert row["precision_class"] == precision
    eps = 2.0**-10 if precision == "10-bit" else 2.0**-7
    assert any(report["rounding"] > eps / 16 for report in row["gradients"])
    assert all(report["rounding"] < 8 * eps for report in row["gradients"])


def test_nothing_is_rounded_in_the_class_fp32(tmp_path: Path, harness: Callable[..., Any]) -> None:
    problem, solution = tmp_path / "problem.py", tmp_path / "answer.py"
    problem.write_text(PROBLEM.format(precision="fp32", **CHAIN._asdict()))
    solution.write_text(SOLUTION.replace("{init}", CHAIN.init).replace("{forward}", CHAIN.forward))
    (row,) = harness("evaluate", solution, "--problem", problem, "--device", "cpu", "--json").rows
    assert row["status"] == "PASSED"
    assert [report["rounding"] for report in (*row["outputs"], *row["gradients"])] == [None] * 6


@pytest.mark.parametrize(
    ("layers", "forward", "named"),
    [
        (BIASED, PRODUCT_OF.format(bits=10), "10-bit"),
        (BIASED, PRODUCT_OF.format(bits=7), "7-bit"),
        (WITHOUT_PRODUCT, "torch.tanh(x).half().float()", "10-bit"),
        (WITHOUT_PRODUCT, "torch.tanh(x).bfloat16().float()", "7-bit"),
    ],
)
def test_the_class_is_named_by_what_rounding_changes(
    layers: Layers, forward: str, named: str, tmp_path: Path, evaluate_row: Callable[..., Any]
) -> None:
    problem, solution = tmp_path / "problem.py", tmp_path / "answer.py"
    problem.write_text(PROBLEM.format(precision="fp32", **layers._asdict()))
    solution.write_text(SOLUTION.replace("{init}", layers.init).replace("{forward}", forward))
    row = evaluate_row(solution, problem)
    assert row["status"] == "WRONG_OUTPUT"
    assert set(re.findall(r"of class (\S+),", row["message"])) == {named}


def test_what_rounding_does_to_one_slice_allows_the_whole_nothing() -> None:
    nearest = Errors(l2=1e-4, maximum=1e-3, slice_l2=0.5, slice_maximum=0.9)
    whole, by_slice = operands_floors([nearest, nearest])
    assert whole.l2 < 1e-3
    assert whole.maximum < 1e-1
    assert by_slice.l2 > 1
