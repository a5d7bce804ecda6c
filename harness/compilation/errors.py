"""Why a solution does not build: the candidate's fault, on whichever device."""

from __future__ import annotations

import re

#: How compilers, linkers and what runs them say that SIGKILL has ended one of them: g++, nvcc, clang, collect2, ninja.
_KILLED = re.compile(
    r"error: Killed signal terminated program (?P<gcc>\S+)"
    r"|^nvcc error +: '(?P<nvcc>[^']+)' died due to signal 9\b"
    r"|error: unable to execute command: Killed"
    r"|error: (?P<collect2>\S+) terminated with signal 9\b"
    r"|^FAILED: \[code=137\]",
    re.MULTILINE,
)


class BuildError(Exception):
    """A candidate's source did not become a library: the candidate's fault, not the harness's."""


class BuildFailed(BuildError):
    """The compiler or the linker refused the source, or the arguments of the build make no sense.

    Attributes:
        message: The first errors, each as ``file:line: error: …`` with its source line.
        log: Everything the compiler printed.
        key: The build key of what it refused; empty where it came to no compiler.
    """

    def __init__(self, message: str, log: str = "", key: str = ""):
        super().__init__(message)
        self.message = message
        self.log = log
        self.key = key


class BuildKilled(BuildFailed):
    """SIGKILL has ended a compiler, as the system does where memory is short: that says nothing of the source."""


def failed_build(message: str, log: str, key: str = "") -> BuildFailed:
    """What to raise for a build that came to nothing: ``BuildKilled`` where the log says so."""
    killed = _KILLED.search(log)
    if killed is None:
        return BuildFailed(message, log, key)
    program = next(filter(None, killed.groups()), "the compiler")
    return BuildKilled(f"{program} was killed (SIGKILL) amid a build, as the system does where memory is short", log)


class Unsupported(BuildError):
    """The source uses something that this device cannot run.

    Attributes:
        construct: What it is, such as ``inline PTX``.
        file: The file that uses it; the solution's own where that is known.
        line: The line in that file; None when unknown.
        remedy: What the author can do.
    """

    def __init__(self, construct: str, file: str, line: int | None, remedy: str):
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {construct} is not supported on the CPU emulator: {remedy}")
        self.construct = construct
        self.file = file
        self.line = line
        self.remedy = remedy
