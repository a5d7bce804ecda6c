"""Tests the way from a folder of raw answers to scores, as a user would type it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROBLEM = """\
import torch
import torch.nn as nn
batch_size, dim = 4096, 65536
class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
def get_inputs():
    return [torch.randn(batch_size, dim)]
def get_init_inputs():
    return []
"""
RIGHT = """\
<think>tanh is in torch</think>
Here it is:
```python
import torch, torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x)
```
"""


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """Answers of a model to two problems of two levels, one of them without code and one to no problem."""
    for level, name in ((1, "19_Tanh"), (2, "1_Tanh")):
        folder = tmp_path / "problems" / f"level{level}"
        folder.mkdir(parents=True)
        (folder / f"{name}.py").write_text(PROBLEM)
    runs = tmp_path / "runs" / "model"
    runs.mkdir(parents=True)
    for name, text in (
        ("level_1_problem_19_sample_0_kernel.py", RIGHT),
        ("level_1_problem_19_sample_1_kernel.py", RIGHT.replace("torch.tanh(x)", "torch.tanh(x) * 2")),
        ("level_2_problem_1_sample_0_kernel.py", "I cannot do that."),
        ("level_2_problem_7_sample_0_kernel.py", RIGHT),
    ):
        (runs / name).write_text(text)
    return runs


def test_from_a_folder_to_scores(harness: Callable[..., Any], answers: Path, tmp_path: Path) -> None:
    command = ("evaluate", "--answers", answers.parent, "--problem", tmp_path / "problems", "--device", "cpu")
    ran = harness(*command, "--json")
    assert ran.code == 2  # an answer has no problem
    assert f"{answers / 'level_2_problem_7_sample_0_kernel.py'}: no problem '7' of level 2" in ran.err
    assert "1 of 4 answers have no problem" in ran.err
    assert "judged in a smaller case" in ran.err
    found = {row["solution"]: row for row in ran.rows}
    assert {name: row["status"] for name, row in found.items()} == {
        "model/level1/19_Tanh/sample_0": "PASSED",
        "model/level1/19_Tanh/sample_1": "WRONG_OUTPUT",
        "model/level2/1_Tanh/sample_0": "LOAD_ERROR",
    }
    assert "no complete code" in found["model/level2/1_Tanh/sample_0"]["message"]
    sizes = found["model/level1/19_Tanh/sample_0"]["constants"]
    assert sizes.keys() == {"batch_size", "dim"}
    assert found["model/level1/19_Tanh/sample_0"]["case"] == "small"

    results = tmp_path / "results.jsonl"
    results.write_text(ran.out)
    shown = harness("scores", results)
    assert shown.code == 0
    assert "model level1" in shown.out
    one, two, both = [
        row for row in json.loads(harness("scores", results, "--json").out) if row["counting"] == "passed"
    ]
    assert (one["level"], one["problems"], one["samples"], one["correct"], one["own"]) == ("level1", 1, 2, 1, 0)
    assert one["pass_at"] == {"1": 0.5}
    assert (two["solved"], both["problems"], both["solved"]) == (0, 2, 1)
    assert len(harness("scores", results, "--csv").out.splitlines()) == 1 + 2 * 2 * 3

    assert harness("scores", results, "--kernelbench", tmp_path / "kb").code == 0
    exported = json.loads((tmp_path / "kb" / "model" / "level1" / "eval_results.json").read_text())
    assert [entry["correctness"] for entry in exported["19"]] == [True, False]


def test_a_second_time_the_store_answers_and_the_scores_are_whole(
    harness: Callable[..., Any], answers: Path, tmp_path: Path, own_home: Path
) -> None:
    (answers / "level_2_problem_7_sample_0_kernel.py").unlink()
    command = ("evaluate", "--answers", answers, "--problem", tmp_path / "problems", "--device", "cpu")
    first, second = (harness(*command, HARNESS_HOME=str(own_home)) for _ in range(2))
    assert first.code == second.code == 1
    assert "stored" in second.out
    for ran in (first, second):
        (total,) = [line for line in ran.out.splitlines() if line.startswith("model  ")]
        assert total.split()[1:6] == ["2", "1", "3", "1", "0"]
    _, *runs = harness("list", "runs", HARNESS_HOME=str(own_home)).out.splitlines()
    assert len(runs) == 1  # the second judged nothing
    scored = harness("scores", runs[0].split()[0], HARNESS_HOME=str(own_home))
    assert "note: a run holds what it judged itself" in scored.err


BROKEN = """\
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
module = load_inline("nothing", "int nothing() { return missing; }", functions=["nothing"], no_implicit_headers=True)
class ModelNew(nn.Module): ...
"""


def test_a_failure_names_what_the_user_has(harness: Callable[..., Any], tmp_path: Path, own_home: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM.replace("4096, 65536", "4, 8"))
    answers = tmp_path / "answers"
    answers.mkdir()
    (answers / "a_sample_0.py").write_text(BROKEN.rstrip())  # code alone: the file itself is judged
    (answers / "a_sample_1.md").write_text(f"Here:\n```python\n{BROKEN}```\n")
    (answers / "a_sample_2.md").write_text("I cannot do that.")
    place = {"cwd": tmp_path, "HARNESS_HOME": str(own_home)}
    ran = harness("evaluate", "--answers", "answers", "--problem", "problem.py", "--device", "cpu", **place)
    # Candidates whose builds are ready go first, so their order may differ.
    told = {text.split()[0]: text for text in ran.out.split("\n\n")[1:4]}
    assert "  at answers/a_sample_0.py:3\nline 3: error: " in told["answers/problem/sample_0"]
    fenced = told["answers/problem/sample_1"]
    assert "  from answers/a_sample_1.md, lines 3-6 of the answer\nline 3: error: " in fenced
    assert "  from answers/a_sample_2.md, which has no complete code\n" in told["answers/problem/sample_2"]
    assert "harness-answers" not in ran.out

    name = fenced.split()[-1]
    shown = harness("show", name, **place).out
    assert "solution answers/a_sample_1.md, lines 3-6 of the answer (" in shown
    first, second = [line.strip() for line in shown.splitlines() if line.startswith("  python -m harness")]
    assert first == f"python -m harness show {name} --source > judged.py"
    (tmp_path / "judged.py").write_text(harness(*shlex.split(first)[3:6], **place).out)
    (again,) = harness(*shlex.split(second)[3:], "--json", **place).rows
    assert again["status"] == "BUILD_ERROR"


def test_two_answers_of_one_number_are_told(harness: Callable[..., Any], answers: Path, tmp_path: Path) -> None:
    (answers / "level1").mkdir()
    (answers / "level1" / "19_Tanh_sample_0.txt").write_text(RIGHT)
    ran = harness("evaluate", "--answers", answers, "--problem", tmp_path / "problems", "--device", "cpu")
    assert ran.code == 2
    assert "level_1_problem_19_sample_0_kernel.py" in ran.err
    assert "19_Tanh_sample_0.txt and" in ran.err


def results_with(record: dict[str, Any], path: Path, *changes: dict[str, Any]) -> Path:
    """Writes a results file with a record once for each set of changes."""
    path.write_text("".join(json.dumps(record | change) + "\n" for change in changes))
    return path


@pytest.fixture
def record(harness: Callable[..., Any], answers: Path, tmp_path: Path) -> dict[str, Any]:
    """The record of the right answer to the first problem."""
    command = ("evaluate", "--answers", answers, "--problem", tmp_path / "problems", "--device", "cpu", "--json")
    found: dict[str, Any] = next(row for row in harness(*command).rows if row["status"] == "PASSED")
    return found


def test_the_newest_text_of_a_sample_counts(
    harness: Callable[..., Any], record: dict[str, Any], tmp_path: Path
) -> None:
    older = {"status": "WRONG_OUTPUT", "digest": "0" * 64}
    failed = {"status": "HARNESS_ERROR"}
    results = results_with(record, tmp_path / "r.jsonl", older, failed, {})
    score = json.loads(harness("scores", results, "--json").out)[0]
    assert (score["samples"], score["correct"]) == (1, 1)
    results = results_with(record, tmp_path / "r.jsonl", {}, older)
    assert json.loads(harness("scores", results, "--json").out)[0]["correct"] == 0


@pytest.mark.parametrize("model", ["..", "/tmp/elsewhere", "a/../../b"])
def test_no_model_writes_outside_the_folder(
    harness: Callable[..., Any], record: dict[str, Any], tmp_path: Path, model: str
) -> None:
    hostile = {"solution": f"{model}/level1/19_Tanh/sample_0"}
    results = results_with(record, tmp_path / "r.jsonl", {}, hostile)
    ran = harness("scores", results, "--kernelbench", tmp_path / "deep" / "kb")
    assert ran.code == 2
    assert "outside" in ran.err
    assert not (tmp_path / "deep").exists()


def test_lines_without_a_verdict_are_no_records(harness: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM.replace("4096, 65536", "4, 8"))
    (tmp_path / "right.py").write_text(RIGHT.split("```python")[1].split("```")[0])
    ran = harness("evaluate", tmp_path / "right.py", "--problem", tmp_path / "problem.py", "--device", "cpu", "--json")
    results = tmp_path / "results.jsonl"
    fault = '{"solution": "line 1", "status": null, "error": "not JSON"}\n'
    results.write_text(fault + ran.out)
    assert json.loads(harness("scores", results, "--json").out)[0]["correct"] == 1
    results.write_text(fault)
    assert "holds no records" in harness("scores", results).err


def test_wrong_use_is_told(harness: Callable[..., Any], answers: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (("evaluate", "--answers", answers, "group_norm"), "takes no selectors"),
        (("evaluate", "--answers", ""), "--answers is empty"),
        (("list", "runs", "--problem", "group_norm"), "list records --problem"),
        (("scores", "n" * 400), "no results file"),
        (("evaluate", "--answers", tmp_path / "nothing", "--problem", tmp_path / "problems"), "no such file or folder"),
        (("evaluate", "--answers", answers, "--problem", tmp_path / "nothing"), "no such problem, file or folder"),
        (("scores", tmp_path, "--json", "--csv"), "cannot be used together"),
        (("scores", tmp_path / "nothing"), "no results file"),
        (("scores", "run-12345678", "--home", "~no_such_user/x"), "no user 'no_such_user'"),
        (("scores", answers / "level_2_problem_1_sample_0_kernel.py"), "results file"),
    ):
        ran = harness(*arguments)
        assert ran.code == 2, arguments
        assert words in ran.err
        assert "Traceback" not in ran.err


SIZED = """\
import torch
import torch.nn as nn
batch_size, width = 8192, 16384
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))
    def forward(self, x):
        return torch.tanh(x) * self.scale
def get_inputs():
    return [torch.randn(batch_size, width)]
def get_init_inputs():
    return [width]
"""


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        ("16384", "PASSED", ""),  # a copy of the problem's, which follows the case
        ("7", "LOAD_ERROR", "The solution's own get_init_inputs() must follow the problem's constants."),
    ],
)
def test_a_copy_of_get_init_inputs_follows_the_sizes(
    harness: Callable[..., Any], tmp_path: Path, given: str, status: str, words: str
) -> None:
    (tmp_path / "1_Sized.py").write_text(SIZED)
    answer = SIZED.replace("class Model(", "class ModelNew(").replace("return [width]", f"return [{given}]")
    (tmp_path / "answer.py").write_text(answer)
    ran = harness("evaluate", tmp_path / "answer.py", "--problem", tmp_path / "1_Sized.py", "--device", "cpu", "--json")
    (row,) = ran.rows
    assert row["status"] == status, row["message"]
    assert words in row["message"]


def test_sizes_stay_round_for_kernelbench_and_a_failure_shows_them(harness: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "1_Sized.py").write_text(SIZED)
    wrong = "torch.tanh(x) * self.scale * (1 if x.shape[1] % 4 == 0 else 2)"
    answer = SIZED.replace("class Model(", "class ModelNew(").replace("torch.tanh(x) * self.scale", wrong)
    (tmp_path / "answer.py").write_text(answer)
    command = ("evaluate", tmp_path / "answer.py", "--problem", tmp_path / "1_Sized.py", "--device", "cpu")
    ran = harness(*command)
    assert ran.code == 1
    assert "  in a smaller case: batch_size=" in ran.out
    shown = harness("show", ran.out.partition("harness show ")[2].split()[0]).out
    (repeated,) = [line for line in shown.splitlines() if line.startswith("  python -m harness evaluate")]
    (again,) = harness(*shlex.split(repeated)[3:], "--json").rows
    assert (again["status"], again["case"]) == ("WRONG_OUTPUT", "small")
    (row,) = harness(*command, "--preset", "kernelbench", "--json").rows
    assert row["kernelbench"]["correct"] is True
    assert all(size & (size - 1) == 0 for size in row["constants"].values())
