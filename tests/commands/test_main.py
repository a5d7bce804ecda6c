"""What the program says before any command runs."""

from __future__ import annotations

import sys

import pytest

from harness.__main__ import run
from harness.errors import EXIT_HARNESS


def test_windows_is_told_what_to_use_instead(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert run() == EXIT_HARNESS
    assert "WSL" in capsys.readouterr().err
