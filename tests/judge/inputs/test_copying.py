"""Tests models whose functions refer to the model: each evaluation must compute with its own copy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.judge.inputs.copying import copied
from harness.judge.inputs.draws import draw
from harness.judge.reference.reference import Reference
from harness.project import problems
from tests.judge.in_process import judged

PROBLEM = '''
"""Two layers, the second one reached in the way that the test names."""
import functools
import threading
import torch
from torch import nn


class Twice:
    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x):
        return self.layer(self.layer(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = layer = nn.Linear(6, 6)
        {init}

    def forward(self, x):
        return self.call(torch.tanh(self.first(x)))

    def through_second(self, x):
        return self.second(x)


def get_inputs():
    return [torch.randn(12, 6)]


def get_init_inputs():
    return []
'''
WAYS = {
    "closure": "self.call = lambda x: layer(x)",
    "closure over the model": "self.call = lambda x: self.second(x)",
    "default": "self.call = lambda x, layer=layer: layer(x)",
    "keyword default": "self.call = lambda x, *, layer=layer: layer(x)",
    "closure in a closure": "inner = lambda x: layer(x); self.call = lambda x: inner(x)",
    "list": "steps = [lambda x: layer(x)]; self.call = lambda x: steps[0](x)",
    "tuple": "self.steps = (lambda x: layer(x), 1); self.call = lambda x: self.steps[0](x)",
    "dict": "self.steps = {'go': lambda x: layer(x)}; self.call = lambda x: self.steps['go'](x)",
    "partial": "self.call = functools.partial(lambda layer, x: layer(x), layer)",
    "partial of a closure": "self.call = functools.partial(lambda x, factor: layer(x) * factor, factor=2)",
    "bound method": "self.call = self.through_second",
    "bound method of an object": "self.call = Twice(layer).__call__",
    "object": "self.call = Twice(layer)",
    "object with a closure": "self.call = Twice(lambda x: layer(x))",
    "hook": "self.second.register_forward_hook(lambda m, i, o: o * layer.bias); self.call = self.second",
    "parameter": "weight = layer.weight; self.call = lambda x: x @ weight",
    "tensor of no module": "table = torch.randn(6, 6); self.call = lambda x: x @ table",
    "list of tensors": "self.tables = [torch.randn(6, 6)]; self.call = lambda x: x @ self.tables[0]",
    "module of no module": "other = nn.Linear(6, 6); self.call = lambda x: layer(other(x))",
    "module that is a name": "import math; self.call = lambda x: layer(x) * math.pi",
    "lock": "lock = threading.Lock(); self.call = lambda x: layer(x) if lock else x",
    "itself": """
        def call(x, depth=2):
            return call(layer(x), depth - 1) if depth else x
        self.call = call""",
    "state": "seen = []; self.call = lambda x: seen.append(1) or layer(x) * len(seen)",
    "tied weights": "self.second.weight = self.first.weight; self.call = lambda x: layer(x)",
    "non-persistent buffer": "self.register_buffer('t', torch.randn(6), False); self.call = lambda x: x * self.t",
    "complex buffer": "self.register_buffer('c', 1j * torch.randn(6)); self.call = lambda x: (x * self.c).imag",
}


@pytest.mark.parametrize("way", WAYS)
def test_an_evaluation_computes_with_its_own_copy(way: str, tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM.replace("{init}", WAYS[way].strip()))
    problem = problems.read_problem(tmp_path / "problem.py")
    drawn = draw(problem, problems.load(problem, {}), [], seed=1)
    reference = Reference(problem, True, 1 << 30)
    eager, exact, again = (reference.run(drawn, 2, dtype, None) for dtype in (None, torch.float64, None))
    assert [output.dtype for output in exact.outputs] == [torch.float64]
    torch.testing.assert_close(eager.outputs[0].double(), exact.outputs[0], rtol=1e-5, atol=1e-5)
    assert torch.equal(eager.outputs[0], again.outputs[0])  # nothing of an evaluation stays in the draw
    cotangent = [torch.ones_like(eager.outputs[0])]
    for name, gradient in eager.gradients(cotangent).items():
        other = exact.gradients(cotangent)[name]
        assert gradient is not None or name.startswith("second"), name
        if gradient is not None:
            assert other is not None
            torch.testing.assert_close(gradient.double(), other, rtol=1e-4, atol=1e-4)


def test_what_a_model_shares_its_copy_shares_too() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model.views = [model[0].weight, model.apply]  # type: ignore[assignment]
    double = copied(model, torch.float64)
    assert double[0].weight is double[1].weight is double.views[0]  # type: ignore[index]
    assert double.views[1].__self__ is double  # type: ignore[index, union-attr]
    assert model[0].weight.dtype == torch.float32


CLOSURE = PROBLEM.replace("{init}", WAYS["closure"])
SOLUTION = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)

    def forward(self, x):
        weight, bias = {parameters}
        return torch.nn.functional.linear(torch.tanh(self.first(x)), weight, bias)
"""


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ("self.second.weight, self.second.bias", "PASSED"),
        ("self.second.weight, self.second.bias * 0.5 + self.second.bias.detach() * 0.5", "WRONG_GRADIENT"),
        ("self.second.weight, self.second.bias * 1.01", "WRONG_OUTPUT"),
    ],
)
def test_gradients_of_what_a_closure_holds_are_judged(parameters: str, status: str, tmp_path: Path, home: Path) -> None:
    record = judged(CLOSURE, SOLUTION.format(parameters=parameters), tmp_path, home)
    assert record.status == status, record.message
    assert {report.name for report in record.gradients} >= {"second.weight", "second.bias"}
