"""The errors of a failed build, which are the candidate's fault on every device."""

from __future__ import annotations

import re

from harness.compilation.old_torch import hint

#: Messages by which g++, nvcc, clang, collect2 and ninja report that SIGKILL ended a compiler or
#: linker.
_KILLED = re.compile(
    r"error: Killed signal terminated program (?P<gcc>\S+)"
    r"|^nvcc error +: '(?P<nvcc>[^']+)' died due to signal 9\b"
    r"|error: unable to execute command: Killed"
    r"|error: (?P<collect2>\S+) terminated with signal 9\b"
    r"|^FAILED: \[code=137\]",
    re.MULTILINE,
)


class BuildError(Exception):
    """The base error for a candidate's source that did not become a library."""


class BuildFailed(BuildError):
    """The error for a source that a compiler or linker refused, or for senseless build arguments.

    Attributes:
        message: The first errors, each as ``file:line: error: …`` with its source line.
        log: The compiler's full output.
        key: The build key of the refused build; empty if no compiler ran.
    """

    def __init__(self, message: str, log: str = "", key: str = ""):
        super().__init__(message)
        self.message = message
        self.log = log
        self.key = key


class BuildKilled(BuildFailed):
    """The error for a compiler that SIGKILL ended.

    The system does that when memory is short, so it says nothing about the source.
    """


def failed_build(message: str, log: str, key: str = "") -> BuildFailed:
    """Returns the error to raise for a failed build: ``BuildKilled`` if the log shows a SIGKILL."""
    killed = _KILLED.search(log)
    if killed is None:
        told = hint(log)
        return BuildFailed(message if told in message else f"{message}\n{told}", log, key)
    program = next(filter(None, killed.groups()), "the compiler")
    return BuildKilled(f"{program} was killed (SIGKILL) during a build, probably because memory ran out", log)


class Unsupported(BuildError):
    """The error for a source that uses something this device cannot run.

    Attributes:
        construct: What the source uses, such as ``inline PTX``.
        file: The file that uses it; the solution's own if that is known.
        line: The line in that file; None if unknown.
        remedy: What the author can do.
    """

    def __init__(self, construct: str, file: str, line: int | None, remedy: str):
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {construct} is not supported on the CPU emulator: {remedy}")
        self.construct = construct
        self.file = file
        self.line = line
        self.remedy = remedy
