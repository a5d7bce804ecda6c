"""Tests ``validate`` on problems that run but cannot tell a right answer from a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Harness = Callable[..., Any]

# A case each, so that one run tells of all of them; `slope` changes a gradient and no value.
UNFIT = '''
"""A linear layer; the case names what makes it unfit."""
import torch
from torch import nn

flaw = "none"
batch = 24


def slope(x, factor):
    return x.detach() + factor * (x - x.detach())


class Model(nn.Module):
    def __init__(self, flaw):
        super().__init__()
        self.flaw = flaw
        self.linear = nn.Linear(6, 5)
        self.scale = nn.Parameter(torch.rand(5))

    def forward(self, x, other):
        flaw, scale, other = self.flaw, self.scale, other.to(x.dtype)
        if flaw == "input without influence":
            other = 1e-9 * other
        if flaw == "parameter without influence":
            scale = 1 + 1e-9 * scale
        y = self.linear(x) * scale + other
        if flaw == "zeros":
            return y + 2.0**30 - 2.0**30
        if flaw == "constant":
            return 1 + 1e-9 * y
        if flaw == "input":
            return torch.relu(other), y
        if flaw == "barely varies":
            return 1 + 1e-4 * y
        if flaw == "varies over elements only":
            return torch.arange(1.0, 6.0).to(x.dtype) + 1e-3 * y
        if flaw == "class":
            return y + 1e4 - 1e4
        if flaw == "stored class":
            return torch.relu(other) * scale + 1e4 - 1e4 + 0 * y
        if flaw == "eager overflows":
            return torch.exp(y + 88) * torch.exp(x.new_full((), -88.0))
        if flaw == "gradient explodes":
            return slope(y, 1e15)
        if flaw == "gradient vanishes":
            return slope(y, 1e-15)
        if flaw == "gradient of noise":
            return nn.functional.layer_norm(self.linear(x) + other + scale.sum(), (5,)) + 1e-9 * scale.sum()
        if flaw == "gradient not finite":
            return torch.sqrt(y * (y > 0)) + y
        if flaw == "single number":
            return nn.functional.mse_loss(y, x[:, :5])
        if flaw == "indices":
            return y, y.argmax(1)
        return y


def get_inputs():
    if flaw == "same samples":
        return [torch.rand(1, 6).repeat(batch, 1), torch.rand(1, 5).repeat(batch, 1)]
    if flaw == "one value":
        return [torch.randn(batch, 6), torch.zeros(batch, 5)]
    if flaw == "mask":
        return [torch.randn(batch, 6), torch.arange(5) % 2 == 0]
    if flaw == "counts":
        return [torch.randn(batch, 6), torch.randint(9, (batch, 5))]
    return [torch.randn(batch, 6), torch.rand(batch, 5)]


def get_init_inputs():
    return [flaw]
'''

OK, NOTE, FAILED = True, None, False
#: flaw: the outcome, the check that finds it, words that tell it with the figure, and other checks that it shows in.
FLAWS: dict[str, tuple[bool | None, str, str, set[str]]] = {
    "none": (OK, "answers", "fail; the closest, ", set()),
    "indices": (OK, "class", "answers of class 10-bit fail; the closest, ", set()),
    "single number": (OK, "answers", "fail; the closest, ", set()),
    "mask": (NOTE, "influence", "is the same in every draw, so a candidate may ignore it", set()),
    "counts": (OK, "influence", "each parameter and input, drawn again, changes an output", set()),
    "zeros": (
        FAILED,
        "answers",
        "zeros would pass as the output: relative L2 error 1.0e+00, budget ",
        {"draws", "influence", "class"},
    ),
    "constant": (
        FAILED,
        "answers",
        "a constant would pass as the output: relative L2 error ",
        {"draws", "influence", "class"},
    ),
    "input": (FAILED, "answers", "the input other would pass as output[0]: relative L2 error 0.0e+00, budget ", set()),
    "same samples": (
        FAILED,
        "answers",
        "the first sample's answer for all samples would pass as the output",
        {"draws"},
    ),
    "barely varies": (NOTE, "draws", "barely varies over the batch: coefficient of variation ", {"class"}),
    "varies over elements only": (NOTE, "draws", "barely varies over draws: coefficient of variation ", {"class"}),
    "parameter without influence": (
        NOTE,
        "influence",
        "scale, drawn again, changes no output by more than its budget: relative L2 error ",
        set(),
    ),
    "input without influence": (
        NOTE,
        "influence",
        "other, drawn again, changes no output by more than its budget: relative L2 error ",
        set(),
    ),
    "one value": (NOTE, "influence", "other has only one value: its influence is unknown", {"seeds"}),
    "class": (
        NOTE,
        "class",
        "the result with operands of products rounded to 10-bit would pass: relative L2 error ",
        set(),
    ),
    "stored class": (
        NOTE,
        "class",
        "the answer stored in 10-bit would pass: relative L2 error ",
        {"exact", "influence"},
    ),
    "eager overflows": (FAILED, "answers", "eager's own answer would fail as the output: ", {"forward", "gradients"}),
    "gradient explodes": (NOTE, "gradients", "the gradient of x explodes: its RMS ", set()),
    "gradient vanishes": (NOTE, "gradients", "the gradient of x vanishes: its RMS ", set()),
    "gradient of noise": (
        NOTE,
        "gradients",
        "zeros would pass for the gradient of scale: relative L2 error 1.0e+00, budget ",
        {"influence"},
    ),
    "gradient not finite": (NOTE, "gradients", "elements are NaN or infinite", set()),
}


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory, harness: Harness) -> Any:
    """The finished command on all of them."""
    path = tmp_path_factory.mktemp("unfit") / "unfit.py"
    path.write_text(f"{UNFIT}\nCASES = { {name.replace(' ', '_'): {'flaw': name} for name in FLAWS}!r}\n")
    return harness("validate", path, "--device", "cpu", "--json")


@pytest.mark.parametrize(("flaw", "outcome"), list(FLAWS.items()))
def test_what_a_problem_is_unfit_for_is_told_with_its_figure(
    validated: Any, flaw: str, outcome: tuple[bool | None, str, str, set[str]]
) -> None:
    (row,) = validated.rows
    of_case = [check for check in row["checks"] if check["case"] == flaw.replace(" ", "_")]
    ok, name, words, shows_again = outcome
    told = [check for check in of_case if check["ok"] is ok and check["name"] == name and words in check["found"]]
    assert told, of_case
    others = {check["name"] for check in of_case if check["ok"] is not True} - {name}
    assert others <= shows_again, of_case
    # What is refused is refused for this alone, and what is a note refuses nothing.
    assert (ok is False) == any(check["ok"] is False for check in of_case), of_case


def test_refusals_alone_end_the_program_with_2(validated: Any, harness: Harness, tmp_path: Path) -> None:
    assert validated.code == 2
    assert validated.err == ""
    path = tmp_path / "noted.py"
    path.write_text(f"{UNFIT}\nPRECISION = '7-bit'\nCASES = {{'noted': {{'flaw': 'barely varies'}}}}\n")
    noted = harness("validate", path, "--device", "cpu")
    assert (noted.code, noted.err) == (0, "")
    assert "barely varies over draws" in noted.out
    assert "7-bit is the lowest class" in noted.out
