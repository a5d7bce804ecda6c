"""Tests that text by others is safe to print."""

from __future__ import annotations

import pytest

from harness.system.text import printable, without_commands


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31m", "\\x1b[31m"),
        ("wrong\n::stop-commands::x", "wrong\n:\\x3astop-commands::x"),
        ("  ::add-mask::y", "  :\\x3aadd-mask::y"),
        ("std::vector ##[group]z", "std::vector #\\x23[group]z"),
    ],
)
def test_terminals_and_github_get_no_command(text: str, safe: str) -> None:
    assert without_commands(text) == safe


def test_code_stays_as_it_is() -> None:
    assert printable("  ::memcpy(a, b, 4);\n") == "  ::memcpy(a, b, 4);\n"
