"""Tests that a problem's digest follows the modules of the user's own that it imports."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.project.problems import has_changed, load, read_problem

PROBLEM = """
{imports}
import torch
import json


class Model(torch.nn.Module):
    def forward(self, x):
        return act(x)


def get_inputs():
    return [torch.randn(4)]


def get_init_inputs():
    return []
"""
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file below a folder of ``sys.path``."""
    (tmp_path / "lib").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [name for name in sys.modules if name.startswith("own_")]:
        monkeypatch.delitem(sys.modules, name)

    def written(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return written


@pytest.mark.parametrize(
    ("imports", "file"),
    [
        ("from own_ops import act", "lib/own_ops.py"),
        ("import own_ops\nact = own_ops.act", "lib/own_ops.py"),
        ("from own_package.inner import act", "lib/own_package/inner.py"),
        ("from own_folder import inner\nact = inner.act", "lib/own_folder/inner.py"),
        ("from own_package.outer import act", "lib/own_package/inner.py"),
        ("from own_package import act", "lib/own_package/inner.py"),
        ("from own_package import inner\nact = inner.act", "lib/own_package/inner.py"),
    ],
)
def test_a_changed_module_makes_another_problem(imports: str, file: str, write: Write) -> None:
    write("lib/own_package/__init__.py", "from .outer import act\n")
    write("lib/own_package/outer.py", "from . import inner\nact = inner.act\n")
    write(file, "def act(x): return x * 2\n")
    path = write("problem.py", PROBLEM.format(imports=imports))
    before = read_problem(path)
    assert not has_changed(before)
    module = load(before, {})
    assert float(module.model()(module.get_inputs()[0] * 0 + 1)[0]) == 2
    write(file, "def act(x): return x * 3\n")
    after = read_problem(path)
    assert has_changed(before)
    assert after.digest != before.digest
    module = load(after, {})
    assert float(module.model()(module.get_inputs()[0] * 0 + 1)[0]) == 3


@pytest.mark.parametrize("text", ["def act(x) return", "import own_ops\nact = 1", "from ......far import act\nact = 1"])
def test_a_module_that_cannot_be_followed_is_read_all_the_same(text: str, write: Write) -> None:
    path = write("problem.py", PROBLEM.format(imports="from own_ops import act"))
    alone = read_problem(path).digest
    write("lib/own_ops.py", text)
    assert read_problem(path).digest != alone


def test_installed_modules_and_the_harness_do_not_count(write: Write) -> None:
    imports = "import numpy\nimport harness.errors\nfrom torch.nn.functional import relu as act"
    problem = read_problem(write("problem.py", PROBLEM.format(imports=imports)))
    assert problem.digest == read_problem(write("other.py", PROBLEM.format(imports=imports))).digest
    assert "harness.errors" in sys.modules
    load(problem, {})
    assert "harness.errors" in sys.modules


def test_a_folder_behind_a_link_counts(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "lib")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "link"), *sys.path[1:]])
    path = write("problem.py", PROBLEM.format(imports="from own_ops import act"))
    found = []
    for factor in (2, 3):
        write("lib/own_ops.py", f"def act(x): return x * {factor}\n")
        module = load(read_problem(path), {})
        found.append(float(module.model()(module.get_inputs()[0] * 0 + 1)[0]))
    assert found == [2, 3]


def test_an_import_that_no_file_can_have_and_a_module_that_raises_are_passed_over(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Strange:
        def __getattr__(self, name: str) -> object:
            raise ValueError(name)

    monkeypatch.setitem(sys.modules, "own_strange", Strange())  # type: ignore[arg-type]
    write("lib/own_ops.py", "def act(x): return x\n")
    imports = f"from own_ops import act\ntry:\n    import {'a' * 300}\nexcept (ImportError, OSError):\n    pass"
    load(read_problem(write("problem.py", PROBLEM.format(imports=imports))), {})
