"""Tests the smaller case that the CPU judges of a problem made for a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.errors import UsageError
from harness.executors.plan import fitting
from harness.judge.inputs.shrinking import ENOUGH, small_case
from harness.project.problems import Problem, load, read_problem

HEAD = "import torch\nimport torch.nn as nn\n"
RELU = """
batch_size, dim = 4096, 393216
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(batch_size, dim)]
def get_init_inputs():
    return []
"""
GROUPS = """
N = 128
C = 512
size = (C, 256 * 2, 512)
class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(N, *size)]
def get_init_inputs():
    return [C, 8]
"""
LITERALS = """
class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.linear = nn.Linear(inside, outside)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [torch.randn(1024, 8192)]
def get_init_inputs():
    return [8192, 4096]
"""
RECURRENT = """
steps, width = 60_000, 16
class Model(nn.Module):
    def forward(self, x):
        state = x[0]
        for one in x:
            state = torch.mm(state, one)
        return state
def get_inputs():
    return [torch.rand(steps, width, width)]
def get_init_inputs():
    return []
"""
LAYER = """
steps, batch, width = STEPS, 8, 64
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LAYER
    def forward(self, x):
        return self.layer(x)[0]
def get_inputs():
    return [torch.rand(steps, batch, width)]
def get_init_inputs():
    return []
"""
FIXED = """
batch_size = 64
width = 8192
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(width, width)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [torch.randn(batch_size, width)]
def get_init_inputs():
    return []
"""


def problem_of(folder: Path, text: str) -> Problem:
    path = folder / "problem.py"
    path.write_text(HEAD + text)
    return read_problem(path)


def run(problem: Problem, constants: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Runs a case, and returns the shapes of its first input and of its output."""
    module = load(problem, constants)
    inputs = module.get_inputs()
    return tuple(inputs[0].shape), tuple(module.model(*module.get_init_inputs())(*inputs).shape)


def test_sizes_shrink_to_odd_ones_of_several_blocks(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, RELU)
    small = small_case(problem)
    assert small is not None
    assert small.load <= 1
    assert small.constants.keys() == {"batch_size", "dim"}
    assert all(value % 2 for value in small.constants.values())
    shape, _ = run(problem, small.constants)
    assert torch.Size(shape).numel() > 1 << 14


def test_a_loss_gets_a_smaller_batch_on_a_gpu_than_what_has_samples(tmp_path: Path) -> None:
    """The float64 reference of a loss lies in memory as a whole; that of a sample may come in pieces."""
    memory = 4096 * 393216 * 2 * 30
    fits = small_case(problem_of(tmp_path, RELU), memory)
    (tmp_path / "loss").mkdir()
    loss = small_case(problem_of(tmp_path / "loss", RELU.replace("torch.relu(x)", "x.square().sum()")), memory // 2)
    assert fits is not None
    assert loss is not None
    assert not fits.constants
    assert loss.constants == {"batch_size": 2048}


def test_what_must_divide_still_divides(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, GROUPS)
    small = small_case(problem)
    assert small is not None
    shape, _ = run(problem, small.constants)
    assert shape[1] % 8 == 0
    assert shape[1] % 32
    assert min(shape[2:]) % 32


def test_literals_shrink_together_where_the_model_wants_it(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, LITERALS)
    small = small_case(problem)
    assert small is not None
    assert small.load <= 1
    assert small.constants["get_inputs[1]"] == small.constants["get_init_inputs[0]"] < 8192
    assert run(problem, small.constants)[1] == (
        small.constants["get_inputs[0]"],
        small.constants["get_init_inputs[1]"],
    )


def test_a_long_recurrence_gets_fewer_steps(tmp_path: Path) -> None:
    small = small_case(problem_of(tmp_path, RECURRENT))
    assert small is not None
    assert small.constants["steps"] < 60_000
    assert small.load <= ENOUGH


@pytest.mark.parametrize("layer", ["GRU(width, 32, 3)", "LSTM(width, 32, bidirectional=True)", "RNN(width, 32)"])
def test_the_steps_of_a_recurrent_layer_are_counted_without_running_them(tmp_path: Path, layer: str) -> None:
    recurrent = problem_of(tmp_path, LAYER.replace("LAYER", layer).replace("STEPS", "50_000"))
    small = small_case(recurrent)
    assert small is not None
    assert small.load <= ENOUGH
    assert 8 < small.constants["steps"] < 5_000
    shapes = run(recurrent, small.constants)
    assert shapes[1][:2] == shapes[0][:2]


def test_a_constant_that_the_model_reads_stays(tmp_path: Path) -> None:
    """A solution has its own text, in which such a constant keeps its value."""
    small = small_case(problem_of(tmp_path, FIXED))
    assert small is not None
    assert "width" not in small.constants


def test_a_problem_has_one_small_case(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, GROUPS)
    assert small_case(problem) == small_case(problem)


@pytest.mark.parametrize("text", [RELU.replace("4096, 393216", "64, 65"), RELU.replace("4096, 393216", "512, 1000")])
def test_what_is_small_stays_as_it_is(tmp_path: Path, text: str) -> None:
    small = small_case(problem_of(tmp_path, text))
    assert small is not None
    assert small.constants == {}


def test_a_size_at_which_the_body_fails_is_no_choice(tmp_path: Path) -> None:
    heads = "heads = dim // 4096\nshare = dim // heads\n"
    problem = problem_of(tmp_path, RELU.replace("class Model", heads + "class Model"))
    small = small_case(problem)
    assert small is not None
    assert small.load <= 1
    assert run(problem, small.constants)[0] == (small.constants["batch_size"], small.constants["dim"])


EMBEDDING = """
vocabulary = 50257
class Model(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.table = nn.Embedding(words, 768)
    def forward(self, x):
        return self.table(x)
def get_inputs():
    return [torch.randint(0, 50257, (64, 512))]
def get_init_inputs():
    return [vocabulary]
"""


def test_indices_stay_in_range(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, EMBEDDING)
    small = small_case(problem)
    assert small is not None
    assert small.load <= ENOUGH
    assert run(problem, small.constants)[1][0] == small.constants["get_inputs[2]"]


def test_a_forward_that_reads_values_gets_small_inputs(tmp_path: Path) -> None:
    text = RELU.replace("return torch.relu(x)", "return torch.relu(x) if x.sum() > 0 else x")
    small = small_case(problem_of(tmp_path, text))
    assert small is not None
    assert small.constants.keys() == {"batch_size", "dim"}


def test_the_search_keeps_no_module(tmp_path: Path) -> None:
    before = set(sys.modules)
    assert small_case(problem_of(tmp_path, RELU)) is not None
    assert not [name for name in set(sys.modules) - before if name.startswith("harness_problem")]


def test_a_gpu_gets_fewer_samples_if_memory_is_short(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, GROUPS)
    whole = small_case(problem, memory_bytes=1 << 50)
    assert whole is not None
    assert whole.constants == {}
    cut = small_case(problem, memory_bytes=int(whole.load * (1 << 50) / 3))
    assert cut is not None
    assert cut.load <= 1
    assert cut.constants == {"N": 32}


def test_a_gpu_gets_smaller_sizes_if_there_is_no_batch(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, LITERALS.replace("torch.randn(1024, 8192)", "torch.randn(8192)"))
    cut = small_case(problem, memory_bytes=1 << 28)
    assert cut is not None
    assert cut.load <= 1
    assert run(problem, cut.constants)[0] < (8192,)


def test_declared_cases_are_the_users(tmp_path: Path) -> None:
    cases = "CASES = {'full': {}, 'tiny': {'dim': 4}}\n"
    assert small_case(problem_of(tmp_path, cases + RELU)) is None


def test_a_plan_has_the_small_case_and_says_so(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, RELU)
    plan = fitting(problem, "cpu", is_main=False)
    assert plan.error is None
    ((name, constants),) = plan.cases
    assert name == "small"
    (note,) = plan.notes
    assert all(f"{name}={value}" in note for name, value in constants.items())


def test_what_stays_too_large_is_refused_with_what_to_do(tmp_path: Path) -> None:
    plan = fitting(problem_of(tmp_path, FIXED.replace("8192", "16384")), "cpu", is_main=False)
    assert plan.cases == ()
    assert isinstance(plan.error, UsageError)
    assert "--set" in str(plan.error)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n = 9**9**9\n", set()),
        ("n = 7 // 0\n", set()),
        ("n = [3] * 10**9\n", set()),
        ("n = (5, other(), 7)\n", set()),
        ("n = (5, 7)\nn = 7\n", set()),
        ("n = 1 << 10**9\n", set()),
        ("n = 2 ** 12\nm = 1 << 10\n", {"n", "m"}),
        ("n: int = 40\n", {"n"}),
        ("a = b = 40\n", {"a", "b"}),
    ],
)
def test_only_plain_integers_are_sizes(tmp_path: Path, text: str, names: set[str]) -> None:
    from harness.project.extents import Extents

    found = {one.name for one in Extents(HEAD + text).found}
    assert found == names
