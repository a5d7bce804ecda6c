"""Entries, which a program gives the judge, and the answers that it gets back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.answers.choice import extract
from harness.answers.reading import answer_of
from harness.errors import HarnessError, UsageError
from harness.evaluator_arguments import check_flags, check_speedups, check_trials
from harness.executors.protocol import Request
from harness.project.given_problems import keep_problem
from harness.records.kernels import KernelLimits
from harness.records.record import EvaluationRecord, Status
from harness.wire.values import UnsupportedValue, decode_plain, encode_plain


@dataclass(frozen=True)
class Entry:
    """A candidate to judge.

    Attributes:
        candidate: A solution's text (any string with a line break), its file, or
            ``problem/variant``.
        problem: Name or file of the problem to solve, or its text (any string with a line break).
            Optional if the file's folder determines it.
        cases: Names of the problem's cases; empty for ``full`` on a GPU and the smallest case on
            the CPU.
        constants: Constants of the problem to replace; they make a custom case and exclude
            ``cases``.
        every_case: Whether empty ``cases`` mean every case that fits the device.
        tag: Any value by which the program recognizes the answer.
        name: Name of a candidate given as text, for its records; by default ``candidate N``.
        is_answer: Whether ``candidate`` is a model's whole answer, such as Markdown with fences, from
            which the code is extracted.
        trials: Trials of each case; None for the evaluator's number. With fewer than usual, the judge
            also leaves out the further draws and the checks of robustness.
        fresh: Whether to judge again, whatever the store knows.
        to_beat: Speedups over eager by case. On a GPU the judge takes fewer timings of a candidate that
            is certainly far slower; the message of its record says so. The store may answer with such a
            record. None for a whole timing.
        limits_of_kernels: The most that nvcc may give each kernel. If a build ahead shows more, the
            candidate does not run, and the answer's error is a ``LimitExceeded``. Of those that are
            built, candidates without spills then come first. None for no limits.
    """

    candidate: str | os.PathLike[str]
    problem: str | os.PathLike[str] | None = None
    cases: Sequence[str] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    tag: Any = None
    every_case: bool = field(default=False, kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    is_answer: bool = field(default=False, kw_only=True)
    trials: int | None = field(default=None, kw_only=True)
    fresh: bool = field(default=False, kw_only=True)
    to_beat: Mapping[str, float] | None = field(default=None, kw_only=True)
    limits_of_kernels: KernelLimits | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Answer:
    """The judge's answer for a candidate.

    Attributes:
        entry: The entry that the answer belongs to.
        records: A record for each judged case; the store holds them, too.
        error: The reason if records are missing, such as an unknown problem or case, a problem that
            does not run, an answer without code, or a deadline.
    """

    entry: Entry
    records: tuple[EvaluationRecord, ...]
    error: HarnessError | None = None

    @property
    def has_passed(self) -> bool:
        """True if the candidate passed on every case."""
        return self.error is None and all(record.status is Status.PASSED for record in self.records)


def request_of(number: int, entry: Entry, home: Path) -> Request:
    """Turns an entry into a request to the judge.

    Args:
        number: The request's number.
        entry: The entry.
        home: ``HARNESS_HOME``, which keeps problems that are given as text.

    Raises:
        UsageError: The entry is invalid.
        AnswerError: The model's answer holds no complete code.
        HarnessError: The problem's text cannot be kept.
    """
    if not isinstance(entry, Entry):
        raise UsageError(f"{type(entry).__name__} is not an Entry: give harness.Entry(candidate, problem)")
    check_flags(every_case=entry.every_case, is_answer=entry.is_answer, fresh=entry.fresh)
    check_trials(entry.trials)
    if entry.to_beat is not None:
        check_speedups(to_beat=entry.to_beat)
    if not isinstance(entry.limits_of_kernels, KernelLimits | None):
        raise UsageError(f"limits_of_kernels must be a KernelLimits or None, not {entry.limits_of_kernels!r}")
    source, path = (_code(entry.candidate), None) if entry.is_answer else _source_or_path(entry.candidate)
    problem = None if entry.problem is None else _problem(entry.problem, home)
    is_list = isinstance(entry.cases, Iterable) and not isinstance(entry.cases, str | bytes)
    cases = tuple(entry.cases) if is_list else ()
    if not all(isinstance(case, str) for case in cases) or not (is_list or entry.cases is None or entry.cases == ""):
        raise UsageError(f"cases must be a list of names, not {entry.cases!r}")
    if not isinstance(entry.constants, Mapping) or not all(isinstance(name, str) for name in entry.constants):
        raise UsageError("constants must be a dict from the names of the problem's constants to values")
    if sum(map(bool, (cases, entry.constants, entry.every_case))) > 1:
        raise UsageError("cases, constants and every_case cannot be used together: each says what to judge")
    try:
        # Keeps plain values only, because the judge lacks the program's classes.
        constants = decode_plain(encode_plain(dict(entry.constants)))
    except (UnsupportedValue, RecursionError, ValueError) as error:
        raise UsageError(f"constants: {error}") from None
    if entry.name is not None and source is None:
        raise UsageError("name is for a candidate given as text; a file has its own")
    return Request(
        number=number, source=source, path=path, problem=problem, constants=constants, every_case=entry.every_case,
        cases=tuple(map(_plain, cases)), name=None if entry.name is None else _text("name", entry.name),
        trials=entry.trials, fresh=entry.fresh, to_beat=None if entry.to_beat is None else dict(entry.to_beat),
        limits_of_kernels=entry.limits_of_kernels,
    )  # fmt: skip


def _code(answer: object) -> str:
    """Returns the code of a model's answer."""
    data = _text("candidate", answer).encode("utf-8", "surrogatepass")
    return extract(answer_of(data, "the answer", "answer")).code


def _problem(problem: str | os.PathLike[str], home: Path) -> str:
    """Returns the name or path of a problem; a text becomes a file that stays, since records name it."""
    text = _text("problem", problem)
    return str(keep_problem(home, text)) if isinstance(problem, str) and "\n" in text else _found_here(text)


def _source_or_path(candidate: str | os.PathLike[str]) -> tuple[str | None, str | None]:
    text = _text("candidate", candidate)
    return (text, None) if isinstance(candidate, str) and "\n" in text else (None, _found_here(text))


def _found_here(text: str) -> str:
    """Returns the absolute path of an existing file, and any other text unchanged.

    The program may have changed its working directory since it started the judge.
    """
    return os.path.abspath(text) if os.path.isfile(text) else text  # noqa: PTH100, PTH113 - may hold a NUL


def _text(what: str, value: object) -> str:
    """Returns a text or path as a plain string.

    Raises:
        UsageError: The value is neither.
    """
    found = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(found, str):
        raise UsageError(f"{what} must be a string or a path, not {type(value).__name__}")
    return _plain(found)


def _plain(text: str) -> str:
    """Returns a plain string: the judge lacks the program's subclasses of ``str``."""
    return "".join(text)
