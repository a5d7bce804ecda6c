"""Turns the body of a request into evaluations; every wrong field has an error that names it."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.entries import Entry
from harness.errors import UsageError, suggestion
from harness.executors.plan import CaseChoice, Planner
from harness.project.extents import as_written
from harness.project.given_problems import FOLDER, keep_problem
from harness.project.problems import Problem
from harness.project.solutions import KnownProblems, problem_paths
from harness.records.queue import NewEvaluation
from harness.system.files import MAX_SOURCE_BYTES
from harness.system.text import one_line

KEYS = ("problem", "solution", "answer", "cases", "constants", "every_case", "priority", "deadline_s")
REFUSED_PROBLEM = "this server takes no problems from clients; it must be started with --accept-problems"
MOST_IN_BATCH = 1000
MOST_CASES, MOST_NAME = 100, 200
MOST_PRIORITY = 100
MOST_NUMBER = 1e15
MOST_DEPTH = 8
LONGEST_DEADLINE_S = 30 * 86400.0


@dataclass(frozen=True)
class Problems:
    """The problems that clients may name: those of the root, and those that clients have sent.

    A client never names a path. A problem that was sent has the name ``NAME@DIGEST``.

    Attributes:
        root: Folder with ``problems``.
        home: ``HARNESS_HOME``.
        accepts: Whether clients may send problems.
    """

    root: Path
    home: Path
    accepts: bool
    _known: KnownProblems
    _lock: threading.Lock

    @classmethod
    def of(cls, root: Path, home: Path, accepts: bool) -> Problems:
        """Returns the problems of a server."""
        return cls(root, home, accepts, KnownProblems(root), threading.Lock())

    def names(self) -> dict[str, Path]:
        """Returns the files of all problems by name."""
        given = sorted((self.home / FOLDER).glob("*/*.py")) if self.accepts else ()
        return problem_paths(self.root) | {f"{path.stem}@{path.parent.name}": path for path in given}

    def find(self, name: object) -> Problem:
        """Returns the problem that a client names, or whose text it sends.

        Raises:
            UsageError: There is no such problem, or this server takes no texts.
            ProblemError: The file is not a valid problem.
        """
        if not isinstance(name, str):
            raise UsageError(f"'problem' must be a string, not {_kind(name)}")
        if "\n" in name:
            return self.read(self.keep(name))
        known = self.names()
        if name not in known:
            raise UsageError(f"no problem {one_line(name[:MOST_NAME])!r}.{suggestion(name, known)}")
        return self.read(known[name])

    def keep(self, text: str, name: str | None = None) -> Path:
        """Keeps a problem that a client sends.

        Raises:
            UsageError: This server takes no problems, or the name or the text is invalid.
        """
        if not self.accepts:
            raise UsageError(REFUSED_PROBLEM)
        return keep_problem(self.home, text, name)

    def read(self, path: Path) -> Problem:
        """Returns the problem of a file, as the file is now."""
        with self._lock:
            return self._known.find(str(path))


def evaluations(body: object, problems: Problems, client: str, settings: str) -> list[NewEvaluation]:
    """Returns the evaluations that a body asks for: one object, or a list of them.

    Args:
        body: The decoded JSON.
        problems: The problems that clients may name.
        client: Name of the client.
        settings: What else decides a verdict on this server.

    Raises:
        UsageError: The body is invalid; the message names the item and the field.
        ProblemError: A problem is invalid.
    """
    items = body if isinstance(body, list) else [body]
    if not 1 <= len(items) <= MOST_IN_BATCH:
        raise UsageError(f"a batch has 1 to {MOST_IN_BATCH} evaluations, not {len(items)}")
    found = []
    for number, item in enumerate(items):
        try:
            found.append(_evaluation(item, problems, client, settings))
        except UsageError as error:
            raise UsageError(f"evaluation {number}: {error}" if isinstance(body, list) else str(error)) from None
    return found


def entry_of(request: str) -> Entry:
    """Returns the entry of a request that ``evaluations`` made."""
    asked = json.loads(request)
    constants = as_written(Path(asked["path"]).read_text(encoding="utf-8-sig"), asked["constants"])
    return Entry(
        asked["text"], asked["path"], asked["cases"], constants, every_case=asked["every_case"],
        is_answer=asked["is_answer"], name=asked["name"],
    )  # fmt: skip


def _evaluation(item: object, problems: Problems, client: str, settings: str) -> NewEvaluation:
    if not isinstance(item, dict):
        raise UsageError(f"an evaluation must be an object with some of {', '.join(KEYS)}, not {_kind(item)}")
    for key in item:
        if key not in KEYS:
            raise UsageError(f"unknown key {one_line(str(key)[:MOST_NAME])!r}.{suggestion(str(key), KEYS)}")
    if ("solution" in item) == ("answer" in item):
        raise UsageError("give either 'solution', a file's text, or 'answer', a model's whole answer")
    is_answer = "answer" in item
    text = _text(item, "answer" if is_answer else "solution")
    if "problem" not in item:
        raise UsageError("name the 'problem'")
    problem = problems.find(item["problem"])
    cases, constants, every_case = _cases(item), _constants(item), item.get("every_case", False)
    if not isinstance(every_case, bool):
        raise UsageError(f"'every_case' must be true or false, not {_kind(every_case)}")
    if sum(map(bool, (cases, constants, every_case))) > 1:
        raise UsageError("'cases', 'constants' and 'every_case' exclude each other: each says what to judge")
    Planner(CaseChoice(tuple(cases), as_written(problem.source, constants)), on_cpu=True).cases(problem)
    asked = {
        "text": text if is_answer or "\n" in text else f"{text}\n", "is_answer": is_answer, "cases": cases,
        "constants": constants, "every_case": every_case,
    }  # fmt: skip
    digest = hashlib.sha256(
        json.dumps([client, problem.digest, problem.name, asked, settings], sort_keys=True).encode()
    ).hexdigest()[:32]
    deadline_s = _number(item, "deadline_s", None)
    if deadline_s is not None and not 0 < deadline_s <= LONGEST_DEADLINE_S:
        raise UsageError(f"'deadline_s' must be above 0 and at most {LONGEST_DEADLINE_S:.0f} seconds")
    priority = _number(item, "priority", 0)
    if not isinstance(priority, int) or abs(priority) > MOST_PRIORITY:
        raise UsageError(f"'priority' must be a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}")
    return NewEvaluation(
        id=digest,
        problem=problem.name,
        request=json.dumps({**asked, "path": str(problem.path), "name": f"evaluation {digest[:12]}"}),
        priority=priority,
        deadline_at=None if deadline_s is None else time.time() + deadline_s,
    )


def _text(item: Mapping[str, Any], key: str) -> str:
    text = item[key]
    if not isinstance(text, str):
        raise UsageError(f"{key!r} must be a string, not {_kind(text)}")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise UsageError(f"{key!r} has more than {MAX_SOURCE_BYTES:,} bytes, which is the limit")
    return text


def _cases(item: Mapping[str, Any]) -> list[str]:
    cases = item.get("cases", [])
    if not isinstance(cases, list) or not all(isinstance(name, str) and len(name) <= MOST_NAME for name in cases):
        raise UsageError("'cases' must be a list of names")
    if len(cases) > MOST_CASES:
        raise UsageError(f"'cases' has {len(cases)} names; the limit is {MOST_CASES}")
    return cases


def _constants(item: Mapping[str, Any]) -> dict[str, Any]:
    constants = item.get("constants", {})
    if not isinstance(constants, dict):
        raise UsageError(f"'constants' must be an object such as {{\"batch_size\": 4}}, not {_kind(constants)}")
    if not _is_shallow(constants, MOST_DEPTH):
        raise UsageError(f"'constants' are nested too deeply: the limit is {MOST_DEPTH} levels")
    return constants


def _is_shallow(value: object, levels: int) -> bool:
    if not isinstance(value, list | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_shallow(one, levels - 1) for one in inner)


def _number(item: Mapping[str, Any], key: str, default: int | None) -> Any:
    if key not in item:
        return default
    number = item[key]
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise UsageError(f"{key!r} must be a number, not {_kind(number)}")
    if not -MOST_NUMBER <= number <= MOST_NUMBER:  # so that no whole number overflows a float
        raise UsageError(f"{key!r} is too large")
    return number


def _kind(value: object) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return kinds.get(type(value), "null")
