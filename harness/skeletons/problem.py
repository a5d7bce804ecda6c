"""Writes the file of a new problem."""

from __future__ import annotations

from pathlib import Path

from harness.skeletons.writing import filled, new_name, write_new


def new_problem(root: Path, name: str) -> Path:
    """Writes ``root/problems/<name>.py``, a small problem with cases ``full``, ``cpu``, ``odd``.

    Returns:
        The path of the file.

    Raises:
        UsageError: The name is not valid for a problem, or the file exists or cannot be written.
    """
    new_name(name, "problem")
    (path,) = write_new(root / "problems", {f"{name}.py": filled("problem.py.txt", name=name)})
    return path
