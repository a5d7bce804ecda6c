"""What pre-commit checks, checked in the suite too: ruff's rules and format, mypy's strict types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    "command", ["ruff check --no-cache", "ruff format --check --no-cache", "mypy --cache-dir=/dev/null"]
)
def test_the_tree_is_clean(command: str) -> None:
    arguments = [] if command.startswith("mypy") else ["."]
    ran = subprocess.run(
        [sys.executable, "-m", *command.split(), *arguments], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
