"""Tests that a candidate fails that keeps what belongs to one call, or one output, where another finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.project.problems import read_problem
from harness.records.record import Status
from tests.judge.in_process import evaluated

SECRET = "5eed" * 8
KEEP = "kept = SHARED.setdefault('out', torch.empty_like(out))\nkept.copy_(out.detach())\nout.data = kept\nreturn out"
#: The same for the calls of one instance.
KEEP_OWN = KEEP.replace("SHARED", "vars(self)")
# Each keeps what belongs to one call, or to one instance, where the next one finds it.
SHARING = {
    "a result, for integer inputs": (
        "self.table = nn.Parameter(torch.randn(50, 8))",
        "return self.table[x]",
        "torch.randint(0, 50, (4, 9))",
        f"out = self.table[x]\n{KEEP}",
    ),
    "integer inputs that backward reads": (
        "self.table = nn.Parameter(torch.randn(16, 33))",
        "return nn.functional.cross_entropy(self.table, x)",
        "torch.randint(0, 33, (16,))",
        "SHARED['x'] = x\nreturn Loss.apply(self.table, x)",
    ),
    "a result, for few integers": (
        "self.table = nn.Parameter(torch.randn(50, 8))",
        "return self.table[x]",
        "torch.randint(0, 50, (6,))",
        f"out = self.table[x]\n{KEEP_OWN}",
    ),
    "a result, for integers in any order": (
        "self.table = nn.Parameter(torch.randn(50, 8))",
        "return self.table[x].sum(1)",
        "torch.randint(0, 50, (4, 9))",
        f"out = self.table[x].sum(1)\n{KEEP_OWN}",
    ),
    "a result, for complex inputs": (
        "self.scale = nn.Parameter(torch.ones(7))",
        "return (x * self.scale).real",
        "torch.randn(16, 7, dtype=torch.cfloat)",
        f"out = (x * self.scale).real\n{KEEP_OWN}",
    ),
    "a result, for numbers in any order": (
        "self.scale = nn.Parameter(torch.ones(()))",
        "return x.square().mean() * self.scale",
        "torch.randn(16, 7)",
        f"out = x.square().mean() * self.scale\n{KEEP_OWN}",
    ),
    "a norm that backward reads": (
        "pass",
        "return x / x.norm()",
        "torch.randn(16, 7)",
        "return Normed.apply(x)",
    ),
    "a result, beside buffers that change": (
        "self.norm = nn.BatchNorm1d(7)",
        "return self.norm(x)",
        "torch.randn(16, 7)",
        f"out = self.norm(x)\n{KEEP}",
    ),
    "a result, without gradients alone": (
        "self.scale = nn.Parameter(torch.ones(7))",
        "return x * self.scale",
        "torch.randn(16, 7)",
        "out = x * self.scale\nif torch.is_grad_enabled(): return out\n"
        "return SHARED.setdefault('out', torch.empty_like(out)).copy_(out)",
    ),
}
LOSS = """
class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, x):
        ctx.save_for_backward(table)
        return nn.functional.cross_entropy(table, x)

    @staticmethod
    def backward(ctx, grad):
        (table,) = ctx.saved_tensors
        share = torch.softmax(table, -1)
        share[torch.arange(len(table)), SHARED["x"]] -= 1
        return share * (grad / len(table)), None


class Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x / SHARED.setdefault("norm", torch.empty(())).copy_(x.norm())

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        unit = x / SHARED["norm"]
        return (grad - unit * (grad * unit).sum()) / SHARED["norm"]
"""


@pytest.mark.parametrize("what", SHARING)
def test_what_calls_share_fails_and_what_the_problem_itself_does_passes(what: str, tmp_path: Path, home: Path) -> None:
    made, right, inputs, shared = SHARING[what]
    module = (
        "import torch\nimport torch.nn as nn\nSHARED = {{}}\n" + LOSS.replace("{", "{{").replace("}", "}}") + "\n"
        "class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {made}\n\n"
        "    def forward(self, x):\n        {forward}\n"
    )
    functions = f"\ndef get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"
    (tmp_path / "problem.py").write_text(module.format(name="Model", made=made, forward=right) + functions)
    problem = read_problem(tmp_path / "problem.py")
    for forward, passes in ((right, True), (shared.replace("\n", "\n        "), False)):
        solution = tmp_path / "answer.py"
        solution.write_text(module.format(name="ModelNew", made=made, forward=forward))
        record = evaluated(problem, solution, home, SECRET, "full", own_seed="0dd5" * 8)
        assert (record.status is Status.PASSED) == passes, record.message
    assert record.status in (Status.WRONG_OUTPUT, Status.WRONG_GRADIENT)


OF_THE_LOSS = "2 * (y - t) * grad_loss"


@pytest.mark.parametrize(("backward", "passes"), [(f"grad_y + {OF_THE_LOSS}", True), (OF_THE_LOSS, False)])
def test_a_large_output_hides_no_missing_gradient_of_another(
    backward: str, passes: bool, tmp_path: Path, home: Path
) -> None:
    model = """
import torch
import torch.nn as nn


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, t):
        ctx.save_for_backward(y, t)
        return y.clone(), ((y - t) ** 2).sum()

    @staticmethod
    def backward(ctx, grad_y, grad_loss):
        y, t = ctx.saved_tensors
        return BACKWARD, -2 * (y - t) * grad_loss


class NAME(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x, t):
        return Function.apply(x * self.scale, t)
"""
    inputs = "[torch.randn(512, 64), torch.randn(512, 64)]"
    functions = f"\ndef get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return []\n"
    reference = model.replace("NAME", "Model").replace("BACKWARD", f"grad_y + {OF_THE_LOSS}")
    (tmp_path / "problem.py").write_text(reference + functions)
    solution = tmp_path / "answer.py"
    solution.write_text(model.replace("NAME", "ModelNew").replace("BACKWARD", backward))
    record = evaluated(read_problem(tmp_path / "problem.py"), solution, home, SECRET, "full", own_seed="0dd5" * 8)
    assert record.status is (Status.PASSED if passes else Status.WRONG_GRADIENT), record.message
