"""Candidates that come in on a stream, a JSON object a line, and are read when it is their turn."""

from __future__ import annotations

import json
import os
import select as system
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UsageError, suggestion
from harness.executors.plan import Job, Planner
from harness.executors.scheduler import Asked, Fault
from harness.project.problems import Problem
from harness.project.solutions import Candidate, find_problem, read_solution, select
from harness.system.files import MAX_SOURCE_BYTES
from harness.system.text import one_line

#: What a line may hold.
KEYS = ("problem", "source", "path", "tag")
#: A source's characters may take six bytes each as JSON.
MAX_LINE_BYTES = 6 * MAX_SOURCE_BYTES
MAX_TAG_CHARACTERS = 200


class LineReader:
    """Lines of a descriptor, and whether one is there without waiting.

    Args:
        descriptor: What is read, by nobody else.
        limit: Bytes that a line may have; of a longer one as many bytes more are kept as show that.
    """

    def __init__(self, descriptor: int, limit: int):
        self._descriptor = descriptor
        self._limit = limit
        self._read = bytearray()
        self._searched = 0
        self._is_over = False

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def is_ready(self) -> bool:
        """Whether a line, or the end, is there; a line that has begun is not."""
        while not self._is_over and not self._has_line():
            if not system.select([self._descriptor], [], [], 0)[0]:
                return False
            self._read_on()
        return True

    def readline(self) -> bytes:
        """The next line with its end, as soon as it is there; empty at the end of all."""
        while not self._is_over and not self._has_line():
            self._read_on()
        line, end, self._read = self._read.partition(b"\n")
        self._searched = 0
        return bytes(line + end)

    def _has_line(self) -> bool:
        found = self._read.find(b"\n", self._searched)
        self._searched = len(self._read) if found < 0 else found
        return found >= 0

    def _read_on(self) -> None:
        del self._read[self._limit + 1 :]  # all of it is one line, which is too long
        self._searched = len(self._read)
        data = os.read(self._descriptor, 1 << 20)
        self._read += data
        self._is_over = not data


class Lines:
    """The candidates of a stream: an iterable, to be gone through once, and the source that a driver watches.

    A line has ``source``, a solution's text, or ``path``, a solution's file; ``problem``, by name or file, where that
    is not said for all lines; and, if wanted, ``tag``, by which its results are known again.

    Args:
        stream: Where lines come from; a line is read when its candidate is asked for.
        root: Folder that holds ``problems`` and ``solutions``.
        problem: The problem of lines that name none.
        folder: An empty folder, for the sources' files until they are forgotten.
        planner: Gives candidates their cases.
    """

    def __init__(self, stream: LineReader, root: Path, problem: str | None, folder: Path, planner: Planner):
        self._stream = stream
        self._root = root
        self._problem = find_problem(root, problem) if problem is not None else None
        self._folder = folder.resolve()
        self._planner = planner
        self._problems: dict[str, Problem] = {}
        self._left: deque[Job | Fault] = deque()
        self._number = 0

    def fileno(self) -> int:
        """The stream's descriptor."""
        return self._stream.fileno()

    def is_ready(self) -> bool:
        """Whether a next candidate, a line, or the end is there."""
        return bool(self._left) or self._stream.is_ready()

    def __iter__(self) -> Iterator[Asked]:
        """A job for each candidate, a fault for a line that means nothing, None for a blank one."""
        while self._left or (line := self._stream.readline()):
            if not self._left:
                self._number += 1
                self._left.extend(self._asked(line))
            yield self._left.popleft() if self._left else None

    def forget(self, job: Job) -> None:
        """Remove the file of a candidate that has been judged, where it has one by its line alone."""
        self._remove(job.candidate)

    def _remove(self, candidate: Candidate) -> None:
        if candidate.solution.path.parent == self._folder:
            candidate.solution.path.unlink(missing_ok=True)

    def _asked(self, line: bytes) -> Iterator[Job | Fault]:
        """What a line asks for."""
        if not line.strip():
            return
        tag = ""
        try:
            given = _object(line)
            tag = _tag(given)
            for candidate in self._candidates(given, tag):
                try:
                    yield self._planner.job(candidate, tag)
                except UsageError as error:  # a case that this problem does not have: another line's may have it
                    self._remove(candidate)
                    yield self._refused(error, tag)
        except HarnessError as error:
            yield self._refused(error, tag)

    def _refused(self, error: HarnessError, tag: str) -> Fault:
        words = f"line {self._number} of standard input: {error}"
        return Fault(type(error)(words), tag, f"line {self._number}")

    def _candidates(self, given: dict[str, Any], tag: str) -> list[Candidate]:
        _check(given)
        path, source = given.get("path"), given.get("source")
        if (path is None) == (source is None):
            raise UsageError("it must have a 'source' or a 'path', one of the two")
        problem = self._problem_of(given.get("problem"))
        if source is None:
            return select(self._root, [str(path)], None if problem is None else str(problem.path))
        if problem is None:
            raise UsageError("it must say which 'problem' its source solves, or --problem must for all lines")
        file = self._folder / f"line_{self._number}.py"
        file.write_text(source, encoding="utf-8", errors="surrogatepass")
        return [Candidate(problem, read_solution(file, one_line(tag) or f"line {self._number}"))]

    def _problem_of(self, name: str | None) -> Problem | None:
        if name is None:
            return self._problem
        if name not in self._problems:
            self._problems[name] = find_problem(self._root, name)
        return self._problems[name]


def _object(line: bytes) -> dict[str, Any]:
    """What a line says."""
    if len(line) > MAX_LINE_BYTES + 1:
        raise UsageError(f"it has more than {MAX_LINE_BYTES:,} bytes; give the file's path instead of its source")
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is no JSON: {one_line(str(error))}") from None
    if not isinstance(given, dict):
        raise UsageError(f"it must be a JSON object with some of {', '.join(KEYS)}, not {type(given).__name__}")
    return given


def _tag(given: dict[str, Any]) -> str:
    """A line's tag; empty where it has none or a wrong one."""
    tag = given.get("tag", "")
    return tag if isinstance(tag, str) and len(tag) <= MAX_TAG_CHARACTERS else ""


def _check(given: dict[str, Any]) -> None:
    """Refuse what a line may not say.

    Raises:
        UsageError: A key means nothing, or a value is no string.
    """
    for key, value in given.items():
        if key not in KEYS:
            raise UsageError(f"{one_line(key)!r} means nothing; it may have {', '.join(KEYS)}.{suggestion(key, KEYS)}")
        if not isinstance(value, str):
            raise UsageError(f"{key!r} must be a string, not {type(value).__name__}")
    if len(given.get("tag", "")) > MAX_TAG_CHARACTERS:
        raise UsageError(f"'tag' has {len(given['tag']):,} characters; {MAX_TAG_CHARACTERS} are the most")
