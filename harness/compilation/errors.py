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


#: Words of a failure that the machine's load can cause. It says nothing about the source.
_LOAD = re.compile(
    r"[Nn]o space left|[Oo]ut of memory|[Cc]annot allocate memory|virtual memory exhausted|temporarily unavailable"
)
#: Words of a failure that another machine, or this one with other files, may not show.
_MACHINE = re.compile(
    r"[Nn]o such file|cannot (?:find|open)|[Pp]ermission denied|[Ii]nput/output error"
    r"|internal (?:compiler )?error|[Ss]egmentation fault|[Bb]us error|died due to signal|terminated with signal"
)
#: Words of a failure that the same source may not show next time: a signal that somebody sent to a
#: compiler, a disk or a file server that failed.
_PASSING = re.compile(
    rf"{_LOAD.pattern}|[Ii]nput/output error|[Ss]tale file handle|signal terminated program|died due to signal"
    r"|terminated with signal|internal compiler error|\bToolchainError: "
)
#: What a message names if it speaks of the candidate's own text, and if it speaks of a file that the
#: text includes.
_OWN_TEXT = re.compile(
    r"<(?:cuda_sources|cpp_sources|functions)|\bload(?:_inline)?\(|\.(?:py|cu|cuh|cpp|cc|h|hpp):\d"
    r"|\bline \d+: error: "
)
_INCLUDED = " (in "


def names_own_text(message: str) -> bool:
    """Tells whether a failed build's message speaks of the candidate's own text, and of no other file."""
    return _OWN_TEXT.search(message) is not None and _INCLUDED not in message


def is_lasting(message: str, log: str) -> bool:
    """Tells whether a later run may rely on a refusal: it depends on the candidate's text alone."""
    return names_own_text(message) and _MACHINE.search(f"{message}\n{log}") is None


def may_pass_next_time(message: str) -> bool:
    """Tells whether a build that failed with a message may succeed with the same text and tools."""
    return _PASSING.search(message) is not None


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
    """Returns the error to raise for a failed build: ``BuildKilled`` if the log shows a SIGKILL.

    It has no key if the machine's load may be the cause, so that nothing remembers it.
    """
    killed = _KILLED.search(log)
    if killed is None:
        told = hint(log)
        return BuildFailed(message if told in message else f"{message}\n{told}", log, "" if _LOAD.search(log) else key)
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
