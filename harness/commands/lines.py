"""Candidates that come in on a stream, a JSON object a line, and are read when it is their turn."""

from __future__ import annotations

import json
import os
import select as system
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, UsageError, suggestion
from harness.files import MAX_SOURCE_BYTES
from harness.problems import Problem
from harness.solutions import Candidate, find_problem, read_solution, select
from harness.text import one_line

#: What a line may hold.
KEYS = ("problem", "source", "path", "tag")
#: A source's characters may take six bytes each as JSON.
MAX_LINE_BYTES = 6 * MAX_SOURCE_BYTES
MAX_TAG_CHARACTERS = 200


class LineReader:
    """Lines of a descriptor, and whether one is there without waiting.

    Args:
        descriptor: What is read, by nobody else.
    """

    def __init__(self, descriptor: int):
        self._descriptor = descriptor
        self._read = bytearray()
        self._is_over = False

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def is_ready(self) -> bool:
        """Whether a line, or the end, is there."""
        while b"\n" not in self._read and not self._is_over:
            if not system.select([self._descriptor], [], [], 0)[0]:
                return False
            self._read_on()
        return True

    def readline(self, limit: int) -> bytes:
        """The next line with its end, as soon as it is there, or as many bytes of it; empty at the end of all."""
        searched = 0
        while (end := self._read.find(b"\n", searched, limit)) < 0 and len(self._read) < limit and not self._is_over:
            searched = len(self._read)
            self._read_on()
        taken = bytes(self._read[: limit if end < 0 else end + 1])
        del self._read[: len(taken)]
        return taken

    def _read_on(self) -> None:
        data = os.read(self._descriptor, 1 << 20)
        self._read += data
        self._is_over = not data


class Lines:
    """The candidates of a stream; an iterable, to be gone through once.

    A line has ``source``, a solution's text, or ``path``, a solution's file; ``problem``, by name or file, where that
    is not said for all lines; and, if wanted, ``tag``, by which its results are known again. A line that means nothing
    is told and left out; the next one is read.

    Args:
        stream: Where lines come from; a line is read when its candidate is asked for.
        root: Folder that holds ``problems`` and ``solutions``.
        problem: The problem of lines that name none.
        folder: An empty folder, for the sources' files until they are forgotten.
        on_bad_line: Called with what is wrong with a line.

    """

    def __init__(
        self,
        stream: LineReader,
        root: Path,
        problem: str | None,
        folder: Path,
        on_bad_line: Callable[[HarnessError], None],
    ):
        self._stream = stream
        self._root = root
        self._problem = find_problem(root, problem) if problem is not None else None
        self._folder = folder.resolve()
        self._on_bad_line = on_bad_line
        self._problems: dict[str, Problem] = {}

    def __iter__(self) -> Iterator[tuple[Candidate, str]]:
        """The candidates, each with its tag."""
        number = 0
        while line := self._stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            whole = line
            while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                line = self._stream.readline(MAX_LINE_BYTES + 1)  # what is left of it
            if not whole.strip():
                continue
            try:
                candidates, tag = self._read(number, whole)
            except HarnessError as error:
                self._on_bad_line(type(error)(f"line {number} of standard input: {error}"))
                continue
            for candidate in candidates:
                yield candidate, tag

    def forget(self, candidate: Candidate) -> None:
        """Remove the file of a candidate that has been judged, where it has one by its line alone."""
        if candidate.solution.path.parent == self._folder:
            candidate.solution.path.unlink(missing_ok=True)

    def _read(self, number: int, line: bytes) -> tuple[list[Candidate], str]:
        if len(line) > MAX_LINE_BYTES:
            raise UsageError(f"it has more than {MAX_LINE_BYTES:,} bytes; give the file's path instead of its source")
        given = _object(line)
        path, source, tag = given.get("path"), given.get("source"), given.get("tag", "")
        if (path is None) == (source is None):
            raise UsageError("it must have a 'source' or a 'path', one of the two")
        if len(tag) > MAX_TAG_CHARACTERS:
            raise UsageError(f"'tag' has {len(tag):,} characters; {MAX_TAG_CHARACTERS} are the most")
        problem = self._problem_of(given.get("problem"))
        if source is None:
            candidates = select(self._root, [str(path)], None if problem is None else str(problem.path))
        elif problem is None:
            raise UsageError("it must say which 'problem' its source solves, or --problem must for all lines")
        else:
            file = self._folder / f"line_{number}.py"
            file.write_text(source, encoding="utf-8", errors="surrogatepass")
            candidates = [Candidate(problem, read_solution(file, one_line(tag) or f"line {number}"))]
        return candidates, tag

    def _problem_of(self, name: str | None) -> Problem | None:
        if name is None:
            return self._problem
        if name not in self._problems:
            self._problems[name] = find_problem(self._root, name)
        return self._problems[name]


def _object(line: bytes) -> dict[str, Any]:
    """What a line says; all values are strings."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is no JSON: {one_line(str(error))}") from None
    if not isinstance(given, dict):
        raise UsageError(f"it must be a JSON object with some of {', '.join(KEYS)}, not {type(given).__name__}")
    for key, value in given.items():
        if key not in KEYS:
            raise UsageError(f"{one_line(key)!r} means nothing; it may have {', '.join(KEYS)}.{suggestion(key, KEYS)}")
        if not isinstance(value, str):
            raise UsageError(f"{key!r} must be a string, not {type(value).__name__}")
    return given
