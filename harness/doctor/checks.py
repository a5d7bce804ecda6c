"""Defines the result of a check of the machine, and what several checks use."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

NeededFor = Literal["cpu", "cuda", "both"]
#: Seconds that a tool may take to print its version.
_TOOL_LIMIT_S = 20.0


@dataclass(frozen=True)
class MachineCheck:
    """The result of one check.

    Attributes:
        name: Name of the requirement.
        ok: Whether the machine has it and it works. None means that it does not, and the chosen device does
            not need it.
        found: What the check found: a version, a path, a size, or an error.
        remedy: How to get it; empty if nothing is wrong.
        needed_for: Devices that need it.
    """

    name: str
    ok: bool | None
    found: str
    remedy: str
    needed_for: NeededFor


def program_output(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """Returns the output of a program, or None if it is missing, fails or hangs."""
    try:
        finished = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_TOOL_LIMIT_S, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return finished.stdout


def line_of(text: str) -> str:
    """Joins the lines of a message and cuts it after 600 characters."""
    return " ".join(text.split())[:600]


def gib(size: int) -> str:
    """Formats a number of bytes as ``12.3 GiB``."""
    return f"{size / 2**30:.1f} GiB"
