"""Tests what the program prints before any command runs."""

from __future__ import annotations

import sys

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
