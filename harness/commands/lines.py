"""Reads candidates from a stream, one JSON object a line, each when its turn comes."""

from __future__ import annotations

import json
import os
import select as system
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UsageError, suggestion
from harness.executors.plan import Job, Planner
from harness.executors.scheduler import Asked, Fault
from harness.project.extents import as_written
from harness.project.problems import Problem
from harness.project.solutions import Candidate, KnownProblems, read_solution, select
from harness.system.files import MAX_SOURCE_BYTES
from harness.system.text import one_line

#: The keys that a line may have.
KEYS = ("problem", "source", "path", "set", "tag")
#: In JSON each character of a source may take six bytes.
MAX_LINE_BYTES = 6 * MAX_SOURCE_BYTES
MAX_TAG_CHARACTERS = 200


class LineReader:
    """Reads lines from a descriptor, and tells whether a line is there without waiting.

    Args:
        descriptor: The descriptor. Nobody else may read from it.
        limit: The bytes that a line may have. The reader keeps enough of a longer line to show that
            it is too long.
    """

    def __init__(self, descriptor: int, limit: int):
        self._descriptor = descriptor
        self._limit = limit
        self._read = bytearray()
        self._searched = 0
        self._is_over = False

    def fileno(self) -> int:
        """Returns the descriptor."""
        return self._descriptor

    def is_ready(self) -> bool:
        """Tells whether a complete line or the end of the stream is there."""
        while not self._is_over and not self._has_line():
            if not system.select([self._descriptor], [], [], 0)[0]:
                return False
            self._read_on()
        return True

    def readline(self) -> bytes:
        """Waits for the next line and returns it with its line break.

        Empty at the end of the stream.
        """
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
        del self._read[self._limit + 1 :]  # the buffer holds one line, which is too long
        self._searched = len(self._read)
        try:
            data = os.read(self._descriptor, 1 << 20)
        except BlockingIOError:  # the descriptor does not wait by itself
            system.select([self._descriptor], [], [])
            return
        except OSError as error:
            raise UsageError(f"-: standard input cannot be read: {error.strerror}") from None
        self._read += data
        self._is_over = not data


class Lines:
    """The candidates of a stream.

    The object is an iterable for one pass, and a source that the driver can wait for. A line is a
    JSON object with these keys:

    - ``source``, a solution's text, or ``path``, a solution's file;
    - ``problem``, a name or a file, unless one problem holds for all lines;
    - ``set``, optional: constants of the problem to replace, instead of the run's cases;
    - ``tag``, optional, which marks the results of the line.

    Args:
        stream: The reader of the lines. It reads a line when its candidate's turn comes.
        root: The folder that holds ``problems`` and ``solutions``.
        problem: The problem of lines that name none.
        folder: An empty folder for the files of sources, until ``forget``.
        planner: The planner that chooses the cases of candidates.
    """

    def __init__(self, stream: LineReader, root: Path, problem: str | None, folder: Path, planner: Planner):
        self._stream = stream
        self._root = root
        self._problems = KnownProblems(root)
        self._problem = problem
        self._problem_of(None)  # a wrong --problem ends the command and not each line
        self._folder = folder.resolve()
        self._planner = planner
        self._left: deque[Job | Fault] = deque()
        self._number = 0

    def fileno(self) -> int:
        """Returns the stream's descriptor."""
        return self._stream.fileno()

    def is_ready(self) -> bool:
        """Tells whether a next candidate, a line, or the end is there."""
        return bool(self._left) or self._stream.is_ready()

    def __iter__(self) -> Iterator[Asked]:
        """Yields a job for each candidate, a fault for a bad line, and None for a blank one."""
        while self._left or (line := self._stream.readline()):
            if not self._left:
                self._number += 1
                self._left.extend(self._asked(line))
            yield self._left.popleft() if self._left else None

    def forget(self, job: Job) -> None:
        """Removes the file of a judged candidate, if the stream created it."""
        self._remove(job.candidate)

    def _remove(self, candidate: Candidate) -> None:
        if candidate.solution.path.parent == self._folder:
            candidate.solution.path.unlink(missing_ok=True)

    def _asked(self, line: bytes) -> Iterator[Job | Fault]:
        """Yields the jobs or faults of a line."""
        if not line.strip():
            return
        tag = ""
        try:
            given = _object(line)
            tag = _tag(given)
            for candidate in self._candidates(given, tag):
                try:
                    yield self._planner_of(given, candidate.problem).job(candidate, tag)
                # This problem may lack the case, and another line's problem may have it.
                except UsageError as error:
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
            raise UsageError("give either 'source' or 'path'")
        problem = self._problem_of(given.get("problem"))
        if source is None:
            return select(self._root, [str(path)], None if problem is None else str(problem.path))
        if problem is None:
            raise UsageError("name the 'problem' that its source solves, or give --problem for all lines")
        line = f"line {self._number}"
        file = self._folder / f"line_{self._number}.py"
        try:
            file.write_text(source, encoding="utf-8", errors="surrogatepass")
        except OSError as error:
            raise HarnessError(f"cannot write its source to {self._folder}: {error.strerror}") from None
        return [Candidate(problem, read_solution(file, one_line(tag) or line, f"{line} of standard input"))]

    def _planner_of(self, given: dict[str, Any], problem: Problem) -> Planner:
        """Returns the planner with the constants that a line sets."""
        if "set" not in given:
            return self._planner
        constants = as_written(problem.source, given["set"])
        return replace(self._planner, choice=replace(self._planner.choice, cases=(), constants=constants))

    def _problem_of(self, name: str | None) -> Problem | None:
        """Returns the problem that a line names, else that of all lines."""
        wanted = self._problem if name is None else name
        return None if wanted is None else self._problems.find(wanted)


def _object(line: bytes) -> dict[str, Any]:
    """Parses a line.

    Raises:
        UsageError: The line is too long, or is not a JSON object.
    """
    if len(line) > MAX_LINE_BYTES + 1:
        raise UsageError(f"the line has more than {MAX_LINE_BYTES:,} bytes; give the file's path instead of its source")
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {one_line(str(error))}") from None
    if not isinstance(given, dict):
        raise UsageError(f"a line must be a JSON object with some of {', '.join(KEYS)}, not {type(given).__name__}")
    return given


def _tag(given: dict[str, Any]) -> str:
    """Returns a line's tag; empty if it has none or an invalid one."""
    tag = given.get("tag", "")
    return tag if isinstance(tag, str) and len(tag) <= MAX_TAG_CHARACTERS else ""


def _check(given: dict[str, Any]) -> None:
    """Checks the keys and values of a line.

    Raises:
        UsageError: A key is unknown, a value is not a string, or the tag is too long.
    """
    for key, value in given.items():
        if key not in KEYS:
            raise UsageError(f"unknown key {one_line(key)!r}; the keys are {', '.join(KEYS)}.{suggestion(key, KEYS)}")
        kind, words = (dict, 'an object, as in {"batch_size": 4}') if key == "set" else (str, "a string")
        if not isinstance(value, kind):
            raise UsageError(f"{key!r} must be {words}, not {type(value).__name__}")
    if len(given.get("tag", "")) > MAX_TAG_CHARACTERS:
        raise UsageError(f"'tag' has {len(given['tag']):,} characters; the limit is {MAX_TAG_CHARACTERS}")
