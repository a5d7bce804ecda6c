"""Keeps the full logs of failed builds, which messages name."""

from __future__ import annotations

import logging
from pathlib import Path

from harness.compilation.housekeeping import keep_log
from harness.project.solutions import Solution

logger = logging.getLogger(__name__)


def kept_log(folder: Path, solution: Solution, log: str) -> str | None:
    """Writes a compiler's output and returns the file's path; None if it cannot be written."""
    name = f"{solution.digest[:16]}.log"
    try:
        return str(keep_log(folder, name, log))
    except OSError as error:
        logger.warning("cannot write the build log %s: %s", folder / name, error)
        return None


def log_words(build_log: str | None) -> str:
    """Returns the line of a message that names the log; empty if there is none."""
    return f"\nfull log: {build_log}" if build_log else ""
