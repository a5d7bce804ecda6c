"""Tests what the program prints before any command runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from harness.__main__ import COMMANDS, main, run
from harness.errors import EXIT_HARNESS


def test_windows_is_told_what_to_use_instead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert run() == EXIT_HARNESS
    assert "WSL" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_has_the_first_line_of_each_help(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert (command.help or "").splitlines()[0] == COMMANDS[name]


@pytest.mark.parametrize(("color", "is_coloured"), [("always", True), ("never", False), ("auto", False)])
def test_colours_in_a_pipe_are_the_user_s_choice(
    harness: Callable[..., Any], tmp_path: Path, color: str, is_coloured: bool
) -> None:
    (tmp_path / "answer.py").write_text("import no_such_module\n")
    what = ("evaluate", tmp_path / "answer.py", "--problem", "group_norm", "--case", "odd", "--device", "cpu")
    ran = harness("--color", color, *what)
    assert ran.code == 1
    assert ("\x1b[31mLOAD_ERROR" in ran.out) == is_coloured
