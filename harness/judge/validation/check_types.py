"""Defines the results of validating a problem. Importing this module does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from harness.errors import ProblemError

STRUCTURE = "structure"


@dataclass(frozen=True)
class ProblemCheck:
    """The result of one check of a problem.

    Attributes:
        name: Name of the check: ``structure``, ``body``, ``forward``, ...
        ok: True if the check passed, False if the problem is bad, None for a note.
        found: What the check found, in words.
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
    """Return the failed check of a file that does not define a problem."""
    return ProblemCheck(STRUCTURE, False, str(error))
