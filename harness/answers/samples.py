"""Reads many raw answers at once: a folder of files, or a file of JSON lines.

Each answer is a *sample*: a model's n-th answer to a problem. In a folder, the path says which: see
``_named``. A JSON line has the keys ``problem`` and ``completion``, and may have ``sample``,
``level`` and ``model``; other keys are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from harness.answers.reading import RawAnswer, answer_of, read_answer
from harness.errors import AnswerError, UsageError
from harness.system.files import MAX_SOURCE_BYTES, is_file, is_there
from harness.system.text import one_line

#: Suffixes of files that hold an answer. Others in a folder are left out.
SUFFIXES = (".txt", ".md", ".py")
MOST_MODEL_CHARACTERS = 200
MOST_LINE_BYTES = 2 * MAX_SOURCE_BYTES
#: The names that KernelBench gives to answers in ``runs/``.
_KERNELBENCH = re.compile(
    r"level_(?P<level>[0-9]{1,9})_problem_(?P<problem>[0-9]{1,9})_sample_(?P<sample>[0-9]{1,18})(_kernel)?"
)
_SAMPLE = re.compile(r"(?:(?P<problem>.+?)[_.-])?sample[_.-]?(?P<sample>[0-9]{1,18})(_kernel)?", re.IGNORECASE)
_LEVEL = re.compile(r"level[_-]?([0-9]{1,9})", re.IGNORECASE)


@dataclass(frozen=True)
class Sample:
    """A model's answer to a problem.

    Attributes:
        problem: The problem's name, number or path, as the answer's name or line gives it.
        level: KernelBench's level; None if it is not given.
        model: The model's name, or the run's; empty if it is not given.
        number: Number of the sample among the model's answers to the problem, from 0; None if it is
            not given.
        where: The answer's file, or its file and line.
        answer: The text, or why it cannot be read.
    """

    problem: str
    level: int | None
    model: str
    number: int | None
    where: str
    answer: RawAnswer | AnswerError = field(repr=False)


def read_samples(path: Path) -> Iterator[Sample]:
    """Reads the answers of a folder or of a file of JSON lines.

    Raises:
        UsageError: The path is neither, holds no answer, or a line is not a sample.
    """
    shown = one_line(str(path))
    if path.is_dir():
        inside = (one for one in sorted(path.rglob("*"), key=_in_order) if not is_hidden(one.relative_to(path)))
        files = [one for one in inside if one.suffix in SUFFIXES and not one.is_dir()]
        if not files:
            raise UsageError(f"{shown} holds no answers: files that end in {', '.join(SUFFIXES)}, in any subfolder")
        own = path.absolute().parts[1:]
        around = PurePath(*own[-2:] if own and level_of(own[-1]) is not None else own[-1:])
        return (_of_file(file, file.relative_to(path), around) for file in files)
    if path.suffix == ".jsonl" and is_file(path):
        return _of_lines(path, shown)
    if not is_there(path):
        raise UsageError(f"--answers {shown}: no such file or folder")
    raise UsageError(f"--answers {shown}: give a folder of answers, or a file of JSON lines that ends in .jsonl")


def is_hidden(inside: PurePath) -> bool:
    """Returns whether a part of a path begins with a dot, as in ``.git`` and ``.ipynb_checkpoints``."""
    return any(part.startswith(".") for part in inside.parts)


def level_of(folder: str) -> int | None:
    """Returns the level that a folder's name says, as ``level1`` or ``level_1``; None if it says none."""
    found = _LEVEL.fullmatch(folder)
    return int(found[1]) if found else None


def _in_order(path: Path) -> list[tuple[int, int, str]]:
    """Returns a key that sorts 2_x before 10_x."""
    parts = re.split(r"(\d+)", str(path))
    return [(not part.isdecimal(), int(part[:18]) if part.isdecimal() else 0, part) for part in parts]


def _of_file(file: Path, inside: PurePath, around: PurePath) -> Sample:
    """Returns a file's sample; the folder's own name is that of the model where no folder inside is."""
    try:
        answer: RawAnswer | AnswerError = read_answer(str(file))
    except AnswerError as error:
        answer = error
    where = one_line(str(file))
    sample = _named(inside, where, answer)
    return sample if sample.model else _named(around / inside, where, answer)


def _named(inside: PurePath, where: str, answer: RawAnswer | AnswerError) -> Sample:
    """Returns the sample that a path names.

    These paths name sample 2 of problem 19 of level 1; ``MODEL/`` may stand before each, and the
    sample's number may be missing::

        level_1_problem_19_sample_2_kernel.py
        level1/19_ReLU_sample_2.txt
        level1/19_ReLU/sample_2.md
        level1/19/sample_2.txt
    """
    folders = list(inside.parts[:-1])
    stem = inside.stem
    if match := _KERNELBENCH.fullmatch(stem):
        model = "/".join(folders)
        return Sample(match["problem"], int(match["level"]), model, int(match["sample"]), where, answer)
    match = _SAMPLE.fullmatch(stem)
    number = int(match["sample"]) if match else None
    problem = match["problem"] if match else stem
    if problem is None:
        problem = folders.pop() if folders else stem
    level = None
    for position, name in enumerate(folders):
        if (level := level_of(name)) is not None:
            del folders[position]
            break
    return Sample(problem, level, "/".join(folders), number, where, answer)


def _of_lines(path: Path, shown: str) -> Iterator[Sample]:
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MOST_LINE_BYTES), b""), start=1):
            if len(line) == MOST_LINE_BYTES and not line.endswith(b"\n"):
                raise UsageError(f"{shown}:{number}: the line has {MOST_LINE_BYTES:,} bytes or more, the limit")
            if line.strip():
                yield _of_line(line, f"{shown}:{number}")


def _of_line(line: bytes, where: str) -> Sample:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON: {one_line(str(error))}") from None
    if not isinstance(given, dict) or not isinstance(given.get("completion", 0), str | None):
        raise UsageError(f"{where}: a line must be a JSON object with 'problem' and 'completion', a text")
    problem, level, model = given.get("problem"), given.get("level"), given.get("model") or ""
    if not isinstance(problem, str | int) or isinstance(problem, bool):
        raise UsageError(f"{where}: 'problem' must be a problem's name or number")
    if not isinstance(model, str) or len(model) > MOST_MODEL_CHARACTERS:
        raise UsageError(f"{where}: 'model' must be a text of at most {MOST_MODEL_CHARACTERS} characters")
    if model.startswith("/") or ".." in model.split("/"):
        raise UsageError(f"{where}: 'model' is {one_line(model)}; it must not begin with / or have a part ..")
    level, number = _count(level, "level", where), _count(given.get("sample"), "sample", where)
    answer: RawAnswer | AnswerError
    text: str | None = given["completion"]
    try:
        if text is None:
            raise AnswerError(f"{where}: 'completion' is null: the model gave no answer")
        answer = answer_of(text.encode("utf-8", "surrogatepass"), where, where)
    except AnswerError as error:
        answer = error
    return Sample(str(problem), level, one_line(model), number, where, answer)


def _count(value: Any, key: str, where: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18):
        return value
    raise UsageError(f"{where}: {key!r} must be a number from 0")
