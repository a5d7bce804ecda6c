# ruff: noqa: E501 - the table keeps one problem a line
"""Tests malformed problems: the message names the place, other problems are judged, stdout stays JSON."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.system.files import MAX_SOURCE_BYTES
from tests.bad_input.conftest import PROBLEM, Place, solution

INPUTS = "return [torch.randn(n, 3)]"
FORWARD = "return torch.tanh(x * self.w)"
CASES = 'CASES = {"full": {}, "odd": {"n": 5}}'
BACKWARD = """class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.clone()

    @staticmethod
    def backward(ctx, gradient):
        {}


class Model("""


class Bad(NamedTuple):
    """What is replaced in an honest problem, and what must be said about it."""

    name: str
    old: str
    new: str
    words: str


BADS = [
    Bad("no_model", "class Model(", "class Madel(", "defines no Model"),
    Bad("no_inputs", "def get_inputs", "def inputs", "defines no get_inputs"),
    Bad("no_init_inputs", "def get_init_inputs", "def init_inputs", "`def get_init_inputs(): return []`"),
    Bad("syntax", "n = 6", "n = = 6", "syntax.py:4: not Python"),
    Bad("null_byte", "n = 6", "n = 6\0", "null bytes"),
    Bad("too_deep", "n = 6", "n = " + "-" * 100_000 + "6", "nested too deeply"),
    Bad("deep_sum", "n = 6", "n = 6\nm = " + "+".join(["1"] * 5000), "nested too deeply"),
    Bad("body_exits", "n = 6", "n = 6\nraise SystemExit(0)", "body_exits.py:5: the problem's body failed: it called sys.exit"),
    Bad("inputs_raise", INPUTS, "raise OSError('no data')", "inputs_raise.py:18: get_inputs() failed: OSError: no data"),
    Bad("inputs_raise_oddly", INPUTS, "class Odd(Exception):\n        def __str__(self): raise ValueError\n    raise Odd", "Odd (its __str__ raised ValueError)"),
    Bad("inputs_exit", INPUTS, "raise SystemExit(0)", "inputs_exit.py:18"),
    Bad("inputs_no_list", INPUTS, "return torch.randn(n, 3)", "returned Tensor, not a list"),
    Bad("inputs_generate", INPUTS, "yield torch.randn(n, 3)", "returned generator, not a list"),
    Bad("inputs_empty", INPUTS, "return []", "missing 1 required positional argument: 'x'"),
    Bad("inputs_meta", INPUTS, "return [torch.empty(n, 3, device='meta')]", "meta"),
    Bad("inputs_nested", INPUTS, "return [[torch.randn(n, 3)] * 2]", "input 0 of get_inputs() is a list that holds tensors"),
    Bad("inputs_deeply_nested", INPUTS, "return [1, {'a': ({'b': torch.randn(n, 3)},)}]", "input 1 of get_inputs() is a dict that holds tensors"),
    Bad("inputs_sparse", INPUTS, "return [torch.randn(n, 3).to_sparse()]", "is a sparse_coo tensor"),
    Bad("inputs_quantized", INPUTS, "return [torch.quantize_per_tensor(torch.randn(n, 3), 0.1, 0, torch.qint8)]", "is a quantized tensor"),
    Bad("inputs_float8", INPUTS, "return [torch.randn(n, 3).to(torch.float8_e4m3fn)]", "Promotion for Float8 Types is not supported"),
    Bad("outputs_float8", FORWARD, "return (x * self.w).to(torch.float8_e4m3fn)", "an output is torch.float8_e4m3fn"),
    Bad("init_inputs_exit", "return [3]", "raise SystemExit(0)", "init_inputs_exit.py:22"),
    Bad("init_inputs_of_pairs", "return [3]", "return [[], {'width': 3}]", "returned a list and a dict, which are two arguments"),
    Bad("model_exits", "super().__init__()", "raise SystemExit(0)", "model_exits.py:10"),
    Bad("forward_raises", FORWARD, "return undefined", "forward_raises.py:14: the reference's forward failed: NameError"),
    Bad("forward_exits", FORWARD, "raise SystemExit(0)", "forward_exits.py:14"),
    Bad("inputs_interrupt", INPUTS, "raise KeyboardInterrupt", "inputs_interrupt.py:18"),
    Bad("forward_interrupts", FORWARD, "raise KeyboardInterrupt", "forward_interrupts.py:14: judging with this problem failed: KeyboardInterrupt"),
    Bad("backward_raises", "class Model(", BACKWARD.format("raise KeyError('lost')"), "lost"),
    Bad("backward_exits", "class Model(", BACKWARD.format("raise SystemExit(0)"), "sys.exit"),
    Bad("backward_cannot", FORWARD, "y = (x * self.w).exp()\n        y.detach().add_(1)\n        return y", "modified by an inplace operation"),
    Bad("cases_none", CASES, "CASES = None", "CASES must map"),
    Bad("cases_exit", CASES, "import os\nCASES = dict(odd={})\nos._exit(3)", "the problem's body ended its process (3)"),
    Bad("cases_gone", CASES, "CASES = dict(odd={})\ndel CASES", "CASES must map"),
    Bad("cases_unhashable", CASES, "CASES = {'odd': {[]: 1}}", "cases_unhashable.py:5: the problem's body failed: TypeError"),
    Bad("case_unknown_constant", CASES, "CASES = {'odd': {'m': 1}}", "'m', which case_unknown_constant.py never assigns"),
    Bad("case_no_settings", CASES, "CASES = {'odd': 3}", "the settings of 'odd' are 3"),
    Bad("precision", CASES, CASES + "\nPRECISION = 'fp8'", "PRECISION is 'fp8'"),
]  # fmt: skip
PRINTS = PROBLEM.replace("n = 6", "import os\nprint('{}')\nos.write(1, b'{}')\nos.system('echo {}')\nn = 6").replace(
    INPUTS, "print('[1]')\n    return [torch.randn(n, 3)]"
)
CLOSES = PROBLEM.replace("n = 6", "import sys\nsys.stdout.close()\nn = 6")


def folder(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to("nowhere.py")


def latin_1(path: Path) -> None:
    path.write_bytes(PROBLEM.encode() + b"# \xe9\n")


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, MAX_SOURCE_BYTES + 1)


KINDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a_folder": (folder, "a folder, not a regular file"),
    "a_pipe": (os.mkfifo, "a pipe, not a regular file"),
    "dangling": (dangling, "No such file"),
    "latin_1": (latin_1, "it is not UTF-8 text"),
    "huge": (huge, "16,777,217 bytes"),
}


@pytest.fixture(scope="module")
def ran(place: Place) -> Any:
    """Every bad problem, those that print, and an honest one, in one command."""
    problems = place.root / "problems"
    for bad in BADS:
        text = PROBLEM.replace(bad.old, bad.new)
        if bad.name.startswith("backward_"):
            text = text.replace(FORWARD, "return Bad.apply(torch.tanh(x * self.w))") if "Bad(" in text else text
        assert text != PROBLEM
        place.write(f"problems/{bad.name}.py", text)
    for name, (make, _) in KINDS.items():
        make(problems / f"{name}.py")
    place.write("problems/prints.py", PRINTS)
    place.write("problems/closes.py", CLOSES)
    for name in [*(bad.name for bad in BADS), *KINDS, "prints", "closes", "tiny"]:
        place.write(f"solutions/{name}/honest.py", solution())
    return place("evaluate", "--case", "odd", "--device", "cpu", "--json")


def test_the_others_are_judged_and_stdout_is_json(place: Place, ran: Any) -> None:
    assert ran.code == 2
    assert "Traceback" not in ran.err
    found = sorted((row["problem"], row["status"]) for row in ran.rows)  # who is built comes first
    assert found == [("closes", "PASSED"), ("prints", "PASSED"), ("tiny", "PASSED")]
    assert "[1]" in ran.err
    assert place.left_behind() == []


@pytest.mark.parametrize("name", [bad.name for bad in BADS] + list(KINDS))
def test_each_is_named_with_its_fault_once(ran: Any, name: str) -> None:
    words = next((bad.words for bad in BADS if bad.name == name), None) or KINDS[name][1]
    told = [line for line in ran.err.splitlines() if line.startswith("error: ") and f"/{name}.py" in line]
    assert len(told) == 1, told
    assert words in told[0]


def test_a_problem_that_prints_leaves_the_table_alone(place: Place, ran: Any) -> None:
    table = place("evaluate", "prints", "--case", "odd", "--device", "cpu", "--fresh")
    assert table.code == 0, table.err
    assert table.out.splitlines()[0].startswith("solution")
    assert "{}" not in table.out
    assert "[1]" not in table.out


def test_list_shows_the_bad_ones_too(place: Place, ran: Any) -> None:
    listed = place("list", "problems")
    assert listed.code == 0
    for name in [bad.name for bad in BADS] + list(KINDS):
        assert any(line.startswith(name) for line in listed.out.splitlines()), name
