"""Defines the errors that reach a user and the exit code of each.

A message says what is wrong, where, and what to do next. A user's mistake never shows a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_PASSED = 0
EXIT_NOT_PASSED = 1
EXIT_USAGE = 2
EXIT_HARNESS = 3
EXIT_INTERRUPTED = 130


class HarnessError(Exception):
    """Base class of the errors that the command line prints as one message.

    Attributes:
        exit_code: Exit code of the program when this error ends it.
    """

    exit_code = EXIT_HARNESS


class UsageError(HarnessError):
    """A command, an option, a selector or a name in it is wrong."""

    exit_code = EXIT_USAGE


class ProblemError(HarnessError):
    """A problem file is missing or malformed, or its reference does not run."""

    exit_code = EXIT_USAGE


class SolutionError(HarnessError):
    """A solution file cannot be read or belongs to no problem."""

    exit_code = EXIT_USAGE


class AnswerError(HarnessError):
    """A model's answer cannot be read or contains no complete code."""

    exit_code = EXIT_USAGE


class TemplateError(HarnessError):
    """A template, its ``params.toml`` or a parameter passed to it is wrong."""

    exit_code = EXIT_USAGE


class ToolchainError(HarnessError):
    """A tool that the harness itself needs, such as a C++ compiler, is missing or broken."""

    exit_code = EXIT_HARNESS


class RecordError(HarnessError):
    """A results file, or a line of it, is not an evaluation record."""

    exit_code = EXIT_USAGE


class StoreError(HarnessError):
    """The record store cannot be opened, read or written."""


class DeviceError(HarnessError):
    """The chosen device is missing or does not work."""

    exit_code = EXIT_HARNESS


class LimitExceeded(HarnessError):
    """A candidate's kernels take more registers or memory than the request allows, so that it did not run."""


class DeadlineExceeded(HarnessError):
    """A candidate had no verdict by its deadline. That says nothing about the candidate."""


#: Limits for the search of similar names. A candidate chooses some names, and the time of a
#: comparison grows with the square of their length.
MAX_COMPARED_CHARACTERS, MAX_COMPARED_NAMES = 200, 1000
#: The most known names that a message lists.
MAX_LISTED_NAMES = 30


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the end of an "unknown name" message that asks about the nearest known name.

    Args:
        name: The name that the user wrote.
        known: The valid names.

    Returns:
        A question with a leading space, or an empty string if no name is similar.
    """
    if len(name) > MAX_COMPARED_CHARACTERS:
        return ""
    comparable = [one for one in sorted(known) if len(one) <= MAX_COMPARED_CHARACTERS][:MAX_COMPARED_NAMES]
    near = difflib.get_close_matches(name, comparable, n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns the end of an "unknown name" message: the nearest known name, or some names.

    Args:
        name: The name that the user wrote.
        known: The valid names.

    Returns:
        A sentence with a leading space, or an empty string if ``known`` is empty.
    """
    names = sorted(known)
    if not names:
        return ""
    if near := nearest(name, names):
        return near
    rest = f", and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return f" Known: {', '.join(names[:MAX_LISTED_NAMES])}{rest}."
