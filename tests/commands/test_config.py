"""Tests ``config --show``: the value and source of each setting, and messages about wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Harness = Callable[..., Any]


def shown(ran: Any) -> dict[str, Any]:
    assert ran.code == 0, ran.err
    (row,) = ran.rows
    return dict(row)


def test_the_variable_counts_before_the_table_and_the_table_before_the_default(
    harness: Harness, tmp_path: Path
) -> None:
    table = tmp_path / "pyproject.toml"
    table.write_text('[tool.harness]\ndevice = "cuda:1"\ntimeout = 30\nroot = "kernels"\nfail-below = 1.5\n')
    below = tmp_path / "deep" / "folder"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text("[tool.other]\n")
    found = shown(harness("config", "--show", "--json", cwd=below, HARNESS_TIMEOUT="20", HARNESS_HOME="/h"))
    from_table = f"[tool.harness] in {table}"
    assert found == {
        "root": {"value": str(tmp_path / "kernels"), "source": from_table},
        "home": {"value": "/h", "source": "environment variable HARNESS_HOME"},
        "device": {"value": "cuda:1", "source": from_table},
        "timeout": {"value": 20.0, "source": "environment variable HARNESS_TIMEOUT"},
        "build-timeout": {"value": 300.0, "source": "default"},
        "fail-below": {"value": 1.5, "source": from_table},
        "rules": {"value": None, "source": "default"},
    }
    lines = harness("config", "--show", cwd=below, HARNESS_TIMEOUT="20").out.splitlines()
    assert len(lines) == len(found)
    assert [line.split() for line in lines if line.startswith("timeout")] == [
        ["timeout", "20.0", "environment", "variable", "HARNESS_TIMEOUT"]
    ]


def test_a_flag_counts_before_all_else(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.harness]\nhome = "from_table"\n')
    table, variable, flag = (tmp_path / f"from_{who}" for who in ("table", "variable", "flag"))
    words = ("cache", "info", "--json")
    assert harness(*words, cwd=tmp_path, HARNESS_HOME="").rows[0]["home"] == str(table)
    assert harness(*words, cwd=tmp_path, HARNESS_HOME=str(variable)).rows[0]["home"] == str(variable)
    ran = harness(*words, "--home", flag, cwd=tmp_path, HARNESS_HOME=str(variable))
    assert ran.rows[0]["home"] == str(flag)


@pytest.mark.parametrize(
    ("table", "variables", "words"),
    [
        ('devise = "cpu"', {}, ["no setting 'devise'", "Did you mean 'device'?"]),
        ('device = "tpu"', {"run": "evaluate"}, ["--device 'tpu'", "auto, cpu, cuda, cuda:N"]),
        ("device = 3", {}, ["device = 3", "must be a string"]),
        ('timeout = "long"', {}, ["timeout = 'long'", "must be a number"]),
        ("timeout = true", {}, ["timeout = True", "must be a number"]),
        ("timeout = -1", {}, ["timeout = -1", "0"]),
        ("timeout =", {}, ["cannot read", "pyproject.toml"]),
        ("", {"HARNESS_TIMEOUT": "soon"}, ["HARNESS_TIMEOUT='soon'", "float"]),
        ("", {"HARNESS_FAIL_BELOW": "0"}, ["HARNESS_FAIL_BELOW='0'"]),
    ],
)
def test_a_wrong_setting_is_told(
    harness: Harness, tmp_path: Path, table: str, variables: dict[str, str], words: list[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.harness]\n{table}\n")
    command = [variables["run"]] if "run" in variables else ["config", "--show"]
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "p.py").write_text("Model = get_inputs = get_init_inputs = None\n")
    (tmp_path / "solutions" / "p").mkdir(parents=True)
    (tmp_path / "solutions" / "p" / "s.py").write_text("")
    environment = {name: value for name, value in variables.items() if name != "run"}
    ran = harness(*command, cwd=tmp_path, **environment)
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err


def test_showing_is_all_that_it_does(harness: Harness, tmp_path: Path) -> None:
    ran = harness("config", cwd=tmp_path)
    assert ran.code == 2
    assert "config --show" in ran.err
