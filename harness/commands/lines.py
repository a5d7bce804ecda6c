"""Candidates that come in on a stream, a JSON object a line, and are read when it is their turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

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


class Lines:
    """The candidates of a stream; an iterable, to be gone through once.

    A line has ``source``, a solution's text, or ``path``, a solution's file; ``problem``, by name or file, where that
    is not said for all lines; and, if wanted, ``tag``, by which its results are known again. A line that means nothing
    is told and left out; the next one is read.

    Args:
        stream: Bytes; a line is read when the one before has been judged.
        root: Folder that holds ``problems`` and ``solutions``.
        problem: The problem of lines that name none.
        folder: An empty folder, for the sources' files while they are judged.
        on_bad_line: Called with what is wrong with a line.

    Attributes:
        tags: What the line said of the file that is being judged.
    """

    def __init__(
        self,
        stream: BinaryIO,
        root: Path,
        problem: str | None,
        folder: Path,
        on_bad_line: Callable[[HarnessError], None],
    ):
        self.tags: dict[Path, str] = {}
        self._stream = stream
        self._root = root
        self._problem = find_problem(root, problem) if problem is not None else None
        self._folder = folder
        self._on_bad_line = on_bad_line
        self._problems: dict[str, Problem] = {}

    def __iter__(self) -> Iterator[Candidate]:
        number = 0
        while line := self._stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            whole = line
            while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                line = self._stream.readline(MAX_LINE_BYTES + 1)  # what is left of it
            if not whole.strip():
                continue
            try:
                candidates = self._read(number, whole)
            except HarnessError as error:
                self._on_bad_line(type(error)(f"line {number} of standard input: {error}"))
                continue
            yield from candidates
            self.tags.clear()
            (self._folder / f"line_{number}.py").unlink(missing_ok=True)

    def _read(self, number: int, line: bytes) -> list[Candidate]:
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
        self.tags.update((candidate.solution.path, tag) for candidate in candidates)
        return candidates

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
