"""A first problem file."""

from __future__ import annotations

from pathlib import Path

from harness.skeletons.writing import filled, new_name, write_new


def new_problem(root: Path, name: str) -> Path:
    """Write ``root/problems/<name>.py``: a small problem with the cases ``full``, ``cpu`` and ``odd``.

    Returns:
        The file.

    Raises:
        UsageError: The name cannot be a problem's, or the file is there or cannot be written.
    """
    new_name(name, "problem")
    (path,) = write_new(root / "problems", {f"{name}.py": filled("problem.py.txt", name=name)})
    return path
