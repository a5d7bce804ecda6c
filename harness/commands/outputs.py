"""Writes the files that a user names with ``-o`` and the like."""

from __future__ import annotations

from pathlib import Path

from harness.errors import UsageError
from harness.project.paths import shown
from harness.system.files import write_whole
from harness.system.text import one_line


def check_folder(path: Path) -> None:
    """Checks that a file's folder exists, before the work for the file begins.

    Raises:
        UsageError: It does not.
    """
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {named(path)}: there is no folder {named(path.parent)}")


def write_output(path: Path, data: bytes) -> None:
    """Writes a file completely or not at all.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        write_whole(path, data)
    except OSError as error:
        raise UsageError(f"cannot write {named(path)}: {error.strerror or error}") from None


def named(path: Path) -> str:
    """Returns a path as messages have it."""
    return one_line(shown(path))
