"""What the validation of a problem says; known without importing torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from harness.errors import ProblemError

STRUCTURE = "structure"


@dataclass(frozen=True)
class ProblemCheck:
    """One thing that was looked at.

    Attributes:
        name: What: ``structure``, ``body``, ``forward``, ...
        ok: True where it is as it must be, False where the problem is bad, None where it is worth knowing.
        found: What was found, in words.
        case: The case; None for the problem as a whole.
    """

    name: str
    ok: bool | None
    found: str
    case: str | None = None


class CheckFinding(NamedTuple):
    """A check's outcome before it has its name; see ``ProblemCheck``."""

    ok: bool | None
    words: str


def bad_structure(error: ProblemError) -> ProblemCheck:
    """The check of a file that is no problem at all."""
    return ProblemCheck(STRUCTURE, False, str(error))
