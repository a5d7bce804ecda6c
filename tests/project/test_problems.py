"""Tests problem files: cases that replace constants, KernelBench files, and malformed files."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from harness.errors import ProblemError, UsageError
from harness.judge.inputs.draws import draw, init_args
from harness.judge.inputs.memory_fit import size_of, why_not
from harness.project import problem_declarations
from harness.project.cases import parse_setting
from harness.project.problems import load, read_problem

KERNELBENCH = '''
import torch
import torch.nn as nn

class Model(nn.Module):
    """Simple model that performs a single square matrix multiplication (C = A * B)"""
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A, B)

N = 2048 * 2

def get_inputs():
    A = torch.rand(N, N)
    B = torch.rand(N, N)
    return [A, B]

def get_init_inputs():
    return []  # No special initialization inputs needed
'''


def write(folder: Path, text: str) -> Path:
    path = folder / "problem.py"
    path.write_text(text)
    return path


def test_a_kernelbench_file_loads_unchanged_and_takes_settings(tmp_path: Path) -> None:
    problem = read_problem(write(tmp_path, KERNELBENCH))
    assert problem.cases == {"full": {}}
    size = size_of(problem, {})
    assert size is not None
    assert size.elements == 3 * 4096 * 4096
    assert "elements" in (why_not(size, 1 << 40) or "")
    module = load(problem, {"N": 3})
    assert [tuple(tensor.shape) for tensor in module.get_inputs()] == [(3, 3), (3, 3)]


def test_a_case_replaces_constants_while_the_body_runs(tmp_path: Path) -> None:
    text = KERNELBENCH + (
        "import math\nwidth, height = 4, 5\nshape = (N, width)\nif N > 2:\n    scale: float = math.sqrt(N)\n"
        "for turns in range(3):\n    last = turns\n"
    )
    problem = read_problem(write(tmp_path, text))
    module = load(problem, {"N": 16, "height": 7})
    names = module.get_inputs.__globals__
    assert (names["shape"], names["width"], names["height"], names["scale"]) == ((16, 4), 4, 7, 4.0)
    derived = load(problem, {"shape": (1, 2), "last": 9}).get_inputs.__globals__
    assert (derived["shape"], derived["last"], derived["N"]) == ((1, 2), 9, 4096)


def test_every_case_of_the_shipped_problem_draws_what_it_says() -> None:
    problem = read_problem(Path(__file__).parents[2] / "problems" / "group_norm.py")
    assert {"full", "cpu"} <= set(problem.cases)
    assert len(problem.cases) >= 6
    size = size_of(problem, problem.case("full"))
    assert size is not None
    assert size.elements == 2 * 112 * 64 * 512 * 512 + 128
    for name in set(problem.cases) - {"full"}:
        module = load(problem, problem.case(name))
        drawn = draw(problem, module, init_args(problem, module, 1), 2)
        assert drawn.model(*drawn.inputs).shape == drawn.inputs[0].shape
        assert not (drawn.model.gn.weight == 1).any()
        assert why_not(size_of(problem, problem.case(name)), 8 << 30) is None


def test_the_rough_size_of_a_small_case_takes_no_compiler_of_torchs() -> None:
    """Importing it takes a second, in each command."""
    program = (
        "import pathlib, sys; from harness.project.problems import read_problem\n"
        "from harness.judge.inputs.memory_fit import size_of\n"
        "problem = read_problem(pathlib.Path(sys.argv[1]))\n"
        "print(size_of(problem, problem.case('odd'), is_rough=True))\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    path = Path(__file__).parents[2] / "problems" / "group_norm.py"
    ran = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, f"Size(elements={3 * 15 * 13 * 7 + 2 * 15}, has_samples=True)\n"), (
        ran.stderr
    )


def test_draws_repeat_with_their_seed_alone() -> None:
    problem = read_problem(Path(__file__).parents[2] / "problems" / "group_norm.py")
    module = load(problem, problem.case("odd"))
    first, again, other = (draw(problem, module, [15, 5], seed) for seed in (1, 1, 2))
    assert first.inputs[0].equal(again.inputs[0])
    assert first.model.gn.weight.equal(again.model.gn.weight)
    assert not first.inputs[0].equal(other.inputs[0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "defines no Model"),
        ("def Model(:\n", ":1: not Python"),
        (KERNELBENCH.replace("def get_inputs", "def inputs"), "get_inputs"),
        (KERNELBENCH + "CASES = {'cpu': {'M': 3}}\n", "'M', which problem.py never assigns. Known: N"),
        (KERNELBENCH + "CASES = {'a b': {}}\n", "not a valid name"),
        (KERNELBENCH + "CASES = [1]\n", "CASES must map"),
        (KERNELBENCH + "PRECISION = 'fp8'\n", "10-bit"),
        (KERNELBENCH + "x = 1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_a_bad_file_is_named_with_its_fault(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ProblemError) as caught:
        load(read_problem(path), {})
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import os\nCASES = dict(odd={})\nos._exit(0)\n", "ended its process (0)"),
        ("import os, signal\nCASES = dict(odd={})\nos.kill(os.getpid(), 9)\n", "ended its process (-9)"),
        ("CASES = dict(odd=dict(N=lambda: 3))\n", "a value of an unsupported type"),
        ("class Size: pass\nCASES = dict(odd=dict(N=Size()))\n", "a value of an unsupported type"),
    ],
    ids=["exit", "killed", "function", "class"],
)
def test_what_a_body_does_when_it_declares_ends_no_program(tmp_path: Path, body: str, words: str) -> None:
    path = write(tmp_path, KERNELBENCH.replace("import torch\n", body + "import torch\n", 1))
    with pytest.raises(ProblemError) as caught:
        read_problem(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_body_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem_declarations, "BODY_LIMIT_S", 1.0)
    path = write(tmp_path, "while True:\n    pass\nCASES = dict(odd={})\n" + KERNELBENCH)
    with pytest.raises(ProblemError, match="still runs after 1 s; give CASES literal values"):
        read_problem(path)


def test_a_body_may_compute_what_it_declares_and_its_children_end_with_it(tmp_path: Path) -> None:
    text = KERNELBENCH + (
        "import subprocess, sys\nkind = torch.float32\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "CASES = {'full': {}, 'odd': {'N': 3, 'kind': torch.float64, 'child': child.pid}}\n"
    )
    problem = read_problem(write(tmp_path, text))
    assert problem.cases.keys() == {"full", "odd"}
    assert problem.case("odd")["kind"] is torch.float64
    stat, patience = Path(f"/proc/{problem.case('odd')['child']}/stat"), time.monotonic() + 60
    while is_alive := stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        if time.monotonic() > patience:
            break
        time.sleep(0.01)
    assert not is_alive


def test_cases_that_share_a_dict_are_read_without_running_the_body(tmp_path: Path) -> None:
    text = (
        "SMALL = {'N': 3, 'kind': 'a'}\nCASES = {'a': SMALL, 'b': {**SMALL, 'kind': 'b'}}\nkind = 'c'\nraise OSError\n"
    )
    problem = read_problem(write(tmp_path, KERNELBENCH + text))
    assert problem.cases == {"a": {"N": 3, "kind": "a"}, "b": {"N": 3, "kind": "b"}}


@pytest.mark.parametrize("change", ["SMALL['N'] = 5", "SMALL.update(N=5)", "SMALL = {'N': 5}", "change(SMALL)"])
def test_a_shared_dict_that_the_body_changes_is_read_as_changed(tmp_path: Path, change: str) -> None:
    text = f"def change(d):\n    d['N'] = 5\nSMALL = {{'N': 3}}\n{change}\nCASES = {{'a': {{**SMALL}}}}\n"
    assert read_problem(write(tmp_path, KERNELBENCH + text)).cases == {"a": {"N": 5}}


def test_a_missing_file_and_a_binary_one_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="cannot read"):
        read_problem(tmp_path / "none.py")
    (tmp_path / "bin.py").write_bytes(b"\xff\x00\xfe")
    with pytest.raises(ProblemError, match="cannot read"):
        read_problem(tmp_path / "bin.py")


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("n=4", ("n", 4)),
        ("shape=(2, 3)", ("shape", (2, 3))),
        (" x = -0.5", ("x", -0.5)),
        ("s='a=b'", ("s", "a=b")),
    ],
)
def test_settings_are_python_literals(text: str, setting: tuple[str, object]) -> None:
    assert parse_setting(text) == setting


@pytest.mark.parametrize("text", ["n", "=4", "n=", "n=f(1)", "1n=4", "n=[", "a.b=3"])
def test_other_settings_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        parse_setting(text)
