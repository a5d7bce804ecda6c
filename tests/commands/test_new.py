"""Tests ``new``: what it writes passes unchanged, in any folder, and it never overwrites."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Harness = Callable[..., Any]
REPOSITORY = Path(__file__).resolve().parents[2]

# What a copy of its model must survive: Jinja2's brackets, a base class, derived constants, a name that is a constant
# in one place and an argument in another, several outputs, an argument with a default.
ENTANGLED = '''
"""Not the file's last word."""
from __future__ import annotations
import math, torch
from torch import nn
try:
    import json as tables
except ImportError:
    tables = None
width = 3
batch = 4
# Derived, and read by the base class.
depth = width * 2
TABLE = {"a": {"b": {}}}
CASES = {"odd": {"batch": 3}}


def helper(x, batch=1):
    """Uses {{ braces }}, {% percents %} and {# hashes #}."""
    return x * len(f"{{{TABLE}}}")


class Base(nn.Module):
    def __init__(self, n):
        super(Base, self).__init__()
        self.linear = nn.Linear(depth, n)


def never_called():
    return math.pi + batch


class Model(Base):
    def __init__(self, n):
        super(Model, self).__init__(n)
        batch = n
        self.batch = batch

    def forward(self, x, scale=1.0):
        y = helper(self.linear(x)) * scale
        return y, y.argmax(1), [v for v in [y.double()]][0]


def get_inputs():
    return [torch.randn(batch, depth), 2.0]


def get_init_inputs():
    return [5]


if __name__ == "__main__":
    print(Model(5), undefined)
'''


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def statuses(ran: Any) -> dict[str, str]:
    return {f"{row['solution']} {row['case']}": row["status"] for row in ran.rows}


@pytest.fixture
def started(harness: Harness, tmp_path: Path) -> Path:
    """A folder of its own with problem ``first`` and template ``own``, as a user makes them."""
    assert harness("new", "problem", "first", cwd=tmp_path).code == 0
    assert harness("new", "template", "own", "--problem", "first", cwd=tmp_path).code == 0
    return tmp_path


def test_a_folder_of_ones_own_passes_from_the_start(harness: Harness, tmp_path: Path) -> None:
    problem = harness("new", "problem", "first", cwd=tmp_path)
    assert (problem.code, problem.err) == (0, "")
    assert problem.out.splitlines() == [
        "wrote problems/first.py",
        "next: python -m harness validate first",
        "then: python -m harness new template first --problem first",
    ]
    template = harness("new", "template", "3_own", "--problem", "first", cwd=tmp_path)
    assert (template.code, template.err) == (0, "")
    written = [line.removeprefix("wrote ") for line in template.out.splitlines() if line.startswith("wrote ")]
    assert files(tmp_path) == {"problems/first.py", *written}
    assert "templates/3_own/binding.h" in written
    assert template.out.splitlines()[-2:] == [
        "next: python -m harness render 3_own",
        "then: python -m harness evaluate first/3_own",
    ]
    (tmp_path / "problems" / "entangled.py").write_text(ENTANGLED)
    entangled = harness("new", "template", "knot", "--problem", "entangled", cwd=tmp_path)
    assert entangled.code == 0, entangled.err
    assert harness("render", "--all", cwd=tmp_path).code == 0
    assert harness("render", "--check", cwd=tmp_path).code == 0

    ran = harness("evaluate", "--case", "odd", "--device", "cpu", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.out + ran.err
    assert statuses(ran) == {
        "entangled/knot odd": "PASSED",
        "first/3_own odd": "PASSED",
    }
    assert {gradient["name"] for gradient in ran.rows[-1]["gradients"]} == {"x", "weight", "bias"}
    assert [output["dtype"] for output in ran.rows[0]["outputs"]] == ["float32", "int64", "float64"]
    copied = (tmp_path / "solutions" / "entangled" / "knot.py").read_text()
    # Without it the annotations of this model might not be evaluated; a model of one's own has the choice.
    assert "from __future__ import annotations\n" in copied
    assert "__future__" not in (tmp_path / "solutions" / "first" / "3_own.py").read_text()
    for left_out in ("never_called", "import math\n", "get_inputs", "CASES", "undefined"):
        assert left_out not in copied
    assert "{{ braces }}, {% percents %} and {# hashes #}" in copied


def test_the_stage_is_what_the_result_goes_through(harness: Harness, started: Path) -> None:
    stage = started / "templates" / "own" / "stage.cu.j2"
    honest = stage.read_text()
    for name, old, new in [
        ("value", "return x;", "return 1.01f * x;"),
        ("derivative", "return 1.0f;", "return 1.01f;"),
    ]:
        assert honest.count(old) == 1
        stage.write_text(honest.replace(old, new))
        assert harness("render", "own", "--name", name, cwd=started).code == 0
    stage.write_text(honest)
    ran = harness("evaluate", "first", "--case", "odd", "--device", "cpu", "--json", cwd=started)
    assert statuses(ran) == {
        "first/derivative odd": "WRONG_GRADIENT",
        "first/value odd": "WRONG_OUTPUT",
    }, [row["message"] for row in ran.rows]


def test_a_template_of_a_shipped_problem_shares_the_common_pieces(harness: Harness, tmp_path: Path) -> None:
    for folder in ("problems/group_norm.py", "templates/common", "templates/group_norm"):
        target = tmp_path / folder
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if "templates" in folder else shutil.copy)(REPOSITORY / folder, target)
    ran = harness("new", "template", "mine", "--problem", "group_norm", "--root", tmp_path)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[-1] == f"then: python -m harness evaluate group_norm/mine --root {tmp_path}"
    assert not files(tmp_path / "templates" / "mine") & files(tmp_path / "templates" / "common")
    assert "\ndefault = true" not in (tmp_path / "templates" / "mine" / "params.toml").read_text()
    everything = harness("render", "--all", cwd=tmp_path)
    assert everything.code == 0, everything.err
    ran = harness("evaluate", "group_norm/mine", "--case", "odd", "--device", "cpu", "--json", cwd=tmp_path)
    assert statuses(ran) == {"group_norm/mine odd": "PASSED"}, ran.out + ran.err
    for parameter in ("threads=64", "unroll=8"):
        assert harness("render", "mine", "-p", parameter, "-o", "-", cwd=tmp_path).code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["Usage", "problem", "template"]),
        (["problme", "x"], ["problem"]),
        (["problem"], ["NAME"]),
        (["problem", "first"], ["first.py already exists"]),
        (["problem", "../evil"], ["'../evil'", "lower-case letters, digits and underscores"]),
        (["problem", "First"], ["'First'", "lower-case"]),
        (["problem", ""], ["''", "lower-case"]),
        (["problem", "__init__"], ["another"]),
        (["template", "x"], ["--problem"]),
        (["template", "x", "--problem", "fist"], ["no problem 'fist'", "Did you mean 'first'?"]),
        (["template", "x", "--problem", "group_norm"], ["no problem 'group_norm'", "copy", "problems/group_norm.py"]),
        (["template", "x", "--problem", str(REPOSITORY / "problems" / "group_norm.py")], ["outside", "copy it"]),
        (["template", "x", "--problem", "broken"], ["broken.py:1", "not Python"]),
        (["template", "x", "--problem", "1_Upper"], ["1_Upper", "lower-case"]),
        (["template", "own", "--problem", "first"], ["templates/own already exists"]),
        (["template", "common", "--problem", "first"], ["'common'", "another"]),
        (["template", "taken", "--problem", "first"], ["already has a solution 'taken'", "taken.py"]),
        (["problem", "x", "--root", "notes.txt"], ["cannot write", "notes.txt"]),
    ],
)
def test_wrong_usage_writes_nothing(harness: Harness, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    (tmp_path / "solutions" / "first").mkdir(parents=True)
    (tmp_path / "templates" / "own").mkdir(parents=True)
    (tmp_path / "problems").mkdir()
    (tmp_path / "notes.txt").write_text("mine\n")
    (tmp_path / "solutions" / "first" / "taken.py").write_text("mine = True\n")
    (tmp_path / "problems" / "broken.py").write_text("def")
    for name in ("first", "1_Upper"):
        shutil.copy(REPOSITORY / "problems" / "group_norm.py", tmp_path / "problems" / f"{name}.py")
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    ran = harness("new", *arguments, cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


def test_a_model_that_reads_what_a_case_replaces_is_told(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "problems").mkdir()
    text = ENTANGLED.replace('{"batch": 3}', '{"batch": 3, "width": 5}')
    (tmp_path / "problems" / "entangled.py").write_text(text)
    ran = harness("new", "template", "knot", "--problem", "entangled", cwd=tmp_path)
    assert ran.code == 0
    (note,) = [line for line in ran.out.splitlines() if line.startswith("note: ")]
    assert "reads width, which its cases replace" in note


def test_the_root_may_come_from_the_table(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.harness]\nroot = "kernels"\n')
    ran = harness("new", "problem", "first", cwd=tmp_path)
    assert ran.code == 0
    assert "wrote kernels/problems/first.py" in ran.out
    assert "--root" not in ran.out


def test_neither_new_nor_cache_imports_torch(tmp_path: Path) -> None:
    for words in (["new", "problem", "x"], ["new", "template", "y", "--problem", "x"], ["cache", "info"]):
        program = (
            f"import sys; sys.argv = ['harness', *{words!r}]; from harness.__main__ import run; code = run(); "
            "sys.exit(code or 'torch' in sys.modules)"
        )
        environment = {"PYTHONPATH": str(REPOSITORY), "HARNESS_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
        ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True)
        assert ran.returncode == 0, ran.stderr
