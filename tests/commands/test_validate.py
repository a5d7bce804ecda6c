"""Tests ``validate``: one case for each way in which a problem can be unsound, with its message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]

# One problem whose cases each have one flaw, so that one run tells of all of them.
FLAWED = '''
"""A linear layer with a flaw that the case names."""
import itertools
import sys
import time

import torch
from torch import nn

flaw = "none"
batch = 3
stuck = 1 / 0 if flaw == "body raises" else sys.exit(3) if flaw == "body exits" else 0
counter = itertools.count()
noise = torch.Generator()


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        raise KeyError("no way back")


class Model(nn.Module):
    def __init__(self, flaw):
        super().__init__()
        self.flaw = flaw
        if flaw == "constructor raises":
            raise ValueError("no such layer")
        self.linear = nn.LazyLinear(4) if flaw == "lazy" else nn.Linear(6, 4)
        self.idle = nn.Parameter(torch.rand(2)) if flaw == "idle parameter" else None
        self.scale = nn.Parameter(torch.rand(4)) if flaw == "vacuous" else None
        self.noise = [torch.Generator()] if flaw == "generator" else None

    def forward(self, x, y=None):
        print("the problem talks")
        if self.flaw == "works in place":
            x.mul_(2)
        flaw, result = self.flaw, self.linear(x)
        if flaw == "forward raises":
            return result + undefined
        if flaw == "forward exits":
            sys.exit("enough")
        if flaw == "no float64" and x.dtype == torch.float64:
            raise RuntimeError("only single precision")
        if flaw == "no backward":
            return Broken.apply(result)
        if flaw == "vacuous":
            return result.detach() + 0 * self.scale * result.sum()
        if flaw == "unused input":
            return result
        if flaw == "cut off":
            return result.detach()
        if flaw == "forgets":
            return result + next(counter)
        if flaw == "rounds":
            return result * (1 + 2.0**-23 * (next(counter) % 7))
        if flaw == "form changes":
            return result[result.sum(1) > 0]
        answers = {
            "none": result,
            "dictionary": {"y": result},
            "nothing": None,
            "empty": result[:0],
            "complex": torch.complex(result, result),
            "zero": result * 0,
            "all NaN": result * float("nan"),
            "some NaN": torch.where(result > 0, result, float("nan")),
            "constant": result * 0 + 1,
            "labels": (result, (result > -1e9).long()),
            "both": (result, result.argmax(1)),
        }
        return answers.get(flaw, result)


def get_inputs():
    if flaw == "inputs raise":
        raise OSError("no data")
    if flaw == "inputs exit":
        sys.exit(4)
    if flaw == "no list":
        return torch.rand(batch, 6)
    if flaw == "no tensor":
        return [1.5]
    if flaw == "unseeded":
        noise.seed()
        return [torch.rand(batch, 6, generator=noise)]
    if flaw == "expanded":
        return [torch.randn(1, 6).expand(batch, 6)]
    if flaw == "same for every seed":
        return [torch.ones(batch, 6)]
    if flaw == "infinite input":
        return [torch.cat([torch.rand(batch, 5), torch.full((batch, 1), float("inf"))], 1)]
    if flaw == "unused input":
        return [torch.randn(batch, 6), torch.rand(2)]
    if flaw == "alien":
        return [torch.randn(batch, 6), object()]
    return [torch.randn(next(counter) % 3 + 2 if flaw == "shape changes" else batch, 6)]


def get_init_inputs():
    return flaw if flaw == "no argument list" else [flaw]
'''

OK, NOTE, FAILED = True, None, False
#: flaw: the outcome, the check that finds it, and words that tell it.
FLAWS: dict[str, tuple[bool | None, str, str]] = {
    "none": (OK, "draws", "other draws give the same shapes, and different outputs"),
    "body raises": (FAILED, "body", "ZeroDivisionError"),
    "body exits": (FAILED, "body", "sys.exit"),
    "constructor raises": (FAILED, "model", "no such layer"),
    "no argument list": (FAILED, "model", "get_init_inputs() returned str, not a list"),
    "lazy": (FAILED, "model", "lazy parameters"),
    "generator": (FAILED, "model", "a random generator in self.noise"),
    "inputs raise": (FAILED, "model", "OSError: no data"),
    "inputs exit": (FAILED, "memory", "sys.exit"),
    "no list": (FAILED, "model", "get_inputs() returned Tensor, not a list"),
    "no tensor": (FAILED, "inputs", "returns no tensor"),
    "infinite input": (NOTE, "inputs", "some inputs are NaN or infinite"),
    "unseeded": (FAILED, "seeds", "the same seed gives different inputs"),
    "same for every seed": (NOTE, "seeds", "inputs are the same for every seed"),
    "forward raises": (FAILED, "forward", "name 'undefined' is not defined"),
    "forward exits": (FAILED, "memory", "sys.exit"),
    "dictionary": (OK, "forward", "returns a dict: float32 (64, 4)"),
    "nothing": (FAILED, "forward", "it returned no tensor"),
    "empty": (FAILED, "forward", "every output is empty"),
    "expanded": (NOTE, "inputs", "input 0 has strides [0, 1], with gaps or elements that share memory"),
    "complex": (FAILED, "forward", "complex"),
    "alien": (FAILED, "forward", "object"),
    "shape changes": (FAILED, "seeds", "the same seed gives different inputs"),
    "works in place": (NOTE, "forward", "forward changes input 0 in place, which no solution may do"),
    "some NaN": (NOTE, "forward", "elements are NaN or infinite"),
    "no backward": (FAILED, "repeat", "the reference's backward failed: KeyError: 'no way back'"),
    "forgets": (FAILED, "repeat", "the reference is not deterministic"),
    "rounds": (NOTE, "repeat", "the order of summation, which the budget allows for"),
    "no float64": (FAILED, "exact", "the reference in float64 failed: RuntimeError: only single precision"),
    "zero": (FAILED, "exact", "the output is zero everywhere, or not finite: comparing it proves nothing"),
    "all NaN": (FAILED, "exact", "the output is zero everywhere, or not finite"),
    "vacuous": (NOTE, "exact", "the gradient of scale is zero for every cotangent"),
    "idle parameter": (NOTE, "influence", "idle, drawn again, changes no output by more than its budget"),
    "unused input": (NOTE, "influence", "y, drawn again, changes no output by more than its budget"),
    "cut off": (NOTE, "exact", "only outputs are judged"),
    "form changes": (FAILED, "draws", "change from draw to draw"),
    "constant": (FAILED, "answers", "a constant would pass as the output: relative L2 error 0.0e+00, budget 3.8e-06"),
    "labels": (FAILED, "answers", "a constant would pass as output[1]: equal"),
    "both": (OK, "forward", "returns a sequence: float32 (64, 4), int64 (64)"),
    "too large": (NOTE, "memory", "left out on the CPU"),
}
#: Some flaws show in other checks as well.
SHOW_AGAIN = {
    "expanded": {"draws", "answers"},
    "infinite input": {"exact"},
    "same for every seed": {"answers", "draws"},
    "shape changes": {"forward"},
    "all NaN": {"exact"},
    "zero": {"exact"},
    "vacuous": {"exact", "influence"},
    "idle parameter": {"exact"},
    "unused input": {"exact"},
    "constant": {"exact", "draws", "answers", "influence", "class"},
    "labels": {"draws", "answers"},
}


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory, harness: Harness) -> Any:
    """The finished command on the flawed problem."""
    path = tmp_path_factory.mktemp("flawed") / "flawed.py"
    cases = {name.replace(" ", "_"): {"flaw": name, "batch": 64} for name in FLAWS}
    cases["too_large"]["batch"] = 1 << 22
    path.write_text(f"{FLAWED}\nCASES = {cases!r}\n")
    return harness("validate", path, "--device", "cpu", "--json")


def test_the_program_ends_with_2_and_without_a_traceback(validated: Any) -> None:
    assert validated.code == 2
    assert "Traceback" not in validated.err
    assert "the problem talks" in validated.err
    (row,) = validated.rows
    assert row["ok"] is False
    assert {check["case"] for check in row["checks"]} == {None, *(name.replace(" ", "_") for name in FLAWS)}


@pytest.mark.parametrize(("flaw", "outcome"), list(FLAWS.items()))
def test_a_flaw_is_told_where_it_shows(validated: Any, flaw: str, outcome: tuple[bool | None, str, str]) -> None:
    (row,) = validated.rows
    of_case = [check for check in row["checks"] if check["case"] == flaw.replace(" ", "_")]
    ok, name, words = outcome
    telling = [check for check in of_case if check["ok"] is ok and check["name"] == name and words in check["found"]]
    assert telling, of_case
    others = {check["name"] for check in of_case if check["ok"] is not True and check not in telling}
    # A reference that does not run tells nothing of its memory.
    assert others <= {"memory", *SHOW_AGAIN.get(flaw, ())}, of_case


def test_the_shipped_problem_is_fine_line_by_line(harness: Harness) -> None:
    ran = harness("validate", "group_norm", "--device", "cpu", "--case", "odd", "--case", "instance")
    assert (ran.code, ran.err) == (0, ""), ran.out
    lines = [line.split(maxsplit=3) for line in ran.out.splitlines()]
    assert lines[0] == ["ok", "structure", "Model,", "get_inputs, get_init_inputs; 9 cases; precision fp32"]
    names = ["body", "memory", "model", "inputs", "seeds", "forward", "repeat", "exact"]
    names += ["draws", "answers", "influence", "class", "gradients", "further"]
    assert [line[:3] for line in lines[1:-1]] == [["ok", case, name] for case in ("odd", "instance") for name in names]
    assert lines[1][3] == "runs with batch_size=3, features=15, num_groups=5, dim1=13, dim2=7"
    assert lines[2][3].startswith("8,220 elements; at the peak about 1.3 MiB on the CPU")
    assert lines[3][3] == "constructs; gn.weight float32 (15), gn.bias float32 (15)"
    assert lines[4][3] == "float32 (3, 15, 13, 7)"
    assert ran.out.splitlines()[-1] == "group_norm: fine"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def", ["not Python"]),
        ("class Model: pass", ["defines no get_inputs"]),
        ("raise SystemExit('at once')\nCASES = dict()\nModel = get_inputs = get_init_inputs = 1", ["body", "sys.exit"]),
        ("return\nModel = get_inputs = get_init_inputs = 1", ["structure", "'return' outside function"]),
        ("def Model(x):\n    global x\nget_inputs = get_init_inputs = 1", ["structure", "own.py:2", "global"]),
        ("Model = get_inputs = get_init_inputs = 1\nCASES = {'a': {'n': 1}}", ["'n'", "never assigns"]),
        ("Model = get_inputs = get_init_inputs = 1\nPRECISION = 'best'", ["PRECISION is 'best'"]),
        ("Model = get_inputs = get_init_inputs = 1", ["full", "body", "Model is not callable"]),
    ],
)
def test_a_file_that_is_no_problem(harness: Harness, tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "own.py"
    path.write_text(text)
    ran = harness("validate", path, "--device", "cpu")
    assert ran.code == 2
    assert ran.out.splitlines()[-1] == f"{path}: 1 FAILED"
    (line,) = [line for line in ran.out.splitlines() if line.startswith("FAILED")]
    assert str(path) in line
    for word in words:
        assert word in line
    assert "Traceback" not in ran.err


def test_nothing_that_fits_is_no_success(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    text = (REPOSITORY / "problems" / "group_norm.py").read_text()
    path.write_text(text.replace("CASES = {", "CASES = {'full': {}, 'less': {'batch_size': 100}}\nOTHERS = {"))
    ran = harness("validate", path, "--device", "cpu", "--json")
    assert ran.code == 2
    (row,) = ran.rows
    assert (row["checks"][-1]["name"], row["checks"][-1]["ok"]) == ("cases", False)
    assert "--case" in row["checks"][-1]["found"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "PROBLEM"),
        (["group_nrom"], "Did you mean 'group_norm'?"),
        (["missing.py"], "problem missing.py: no such file"),
        (["group_norm", "--case", "od"], "Did you mean 'odd'?"),
        (["group_norm", "--device", "tpu"], "'tpu'"),
        (["group_norm", "--root", "nowhere"], "nowhere"),
    ],
)
def test_wrong_usage(harness: Harness, arguments: list[str], words: str) -> None:
    ran = harness("validate", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert "Traceback" not in ran.err


PLAIN = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("flaw", "words"),
    [
        ("__import__('os')._exit(0)", "the problem ended the process that judges it (exit code 0)"),
        ("__import__('os').kill(0, 9)", "the problem ended the process that judges it (signal SIGKILL)"),
        ("__import__('time').sleep(1e6)", "took longer than 5 s (10 times --timeout)"),
        ("__import__('re').match('(a|a)*$', 64 * 'a' + 'b')", "took longer than 5 s (10 times --timeout)"),
    ],
    ids=["exit", "signal", "sleep", "interpreter lock"],
)
def test_a_problem_that_ends_or_holds_up_its_process(harness: Harness, tmp_path: Path, flaw: str, words: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(PLAIN.replace("    return [torch.randn", f"    {flaw}\n    return [torch.randn"))
    ran = harness("validate", path, "--device", "cpu", "--json", "--timeout", "0.5")
    assert ran.code == 2, ran.err
    (row,) = ran.rows
    assert [check["name"] for check in row["checks"] if check["ok"] is False] == ["process"]
    assert row["checks"][-1]["case"] == "full"
    assert words in row["checks"][-1]["found"]
    assert "Traceback" not in ran.err


def test_the_time_limit_is_the_problem_s_where_the_user_sets_none(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    sleepy = PLAIN.replace("    return [torch.randn", "    __import__('time').sleep(1e6)\n    return [torch.randn")
    path.write_text(f"{sleepy}\nTIMEOUT_S = 0.5\n")
    ran = harness("validate", path, "--device", "cpu")
    assert ran.code == 2
    assert "took longer than 5 s" in ran.out


STRANGE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(7, 5)
        self.second = nn.Linear(7, 5)

    def forward(self, x, y):
        return torch.tanh(self.first(x)), torch.tanh(self.second(y)), self.first.weight.square().mean()


def get_inputs():
    return [torch.randn(6, 7, requires_grad=True), torch.randn(9, 7)]


def get_init_inputs():
    return []
"""


def test_inputs_that_need_gradients_and_outputs_without_the_batch_are_fit(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "strange.py").write_text(STRANGE)
    ran = harness("validate", tmp_path / "strange.py", "--device", "cpu")
    assert (ran.code, ran.out.splitlines()[-1].rpartition(": ")[2]) == (0, "fine"), ran.out


INTO_ZEROS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, index, source):
        return x.index_add(0, index, source)


def get_inputs():
    return [torch.zeros(8, 16), torch.randint(0, 8, (20,)), torch.randn(20, 16)]


def get_init_inputs():
    return []
"""


def test_samples_of_one_value_alone_prove_nothing_against_a_problem(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "scattered.py").write_text(INTO_ZEROS)
    ran = harness("validate", tmp_path / "scattered.py", "--device", "cpu")
    assert (ran.code, ran.out.splitlines()[-1].rpartition(": ")[2]) == (0, "fine"), ran.out
