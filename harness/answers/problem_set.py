"""Finds the problem that an answer solves, by name or by number."""

from __future__ import annotations

import re
from pathlib import Path

from harness.answers.samples import is_hidden, level_of
from harness.errors import UsageError, nearest
from harness.project.problems import Problem, read_problem
from harness.system.files import is_file, is_there
from harness.system.text import one_line


class ProblemSet:
    """The problem files of a folder and of its subfolders, or one file.

    Args:
        folder: The folder, or the file of a problem, which all answers then solve.

    Raises:
        UsageError: The folder does not exist or has no Python file.
    """

    def __init__(self, folder: Path):
        self._is_single = is_file(folder)
        self._paths = (
            [folder]
            if self._is_single
            else sorted(
                one for one in folder.rglob("*.py") if one.stem != "__init__" and not is_hidden(one.relative_to(folder))
            )
        )
        self._folder = folder
        self._read: dict[Path, Problem] = {}
        if not is_there(folder):
            raise UsageError(f"--problem {one_line(str(folder))}: no such problem, file or folder")
        if not self._paths:
            raise UsageError(f"no problem (*.py) in {one_line(str(folder))} or below it")

    def find(self, name: str, level: int | None) -> Problem:
        """Returns the problem of an answer.

        Args:
            name: The problem's file name with or without folders and suffix, or its number: the one
                that its file name begins with. ``task_19`` and ``problem_19`` are numbers, too.
            level: Number of the level, whose folder is ``level1`` or ``level_1`` for 1; None for
                any.

        Raises:
            UsageError: No problem or more than one has that name.
            ProblemError: The file is not a valid problem.
        """
        if self._is_single:
            return self._known(self._folder)
        wanted = name.removesuffix(".py").casefold().replace("\\", "/")
        stem = wanted.rpartition("/")[2]
        fits = [one for one in self._paths if level is None or level_of(one.absolute().parent.name) == level]
        found = [one for one in fits if one.stem.casefold() == stem]
        if not found and (number := re.fullmatch(r"(?:(?:task|problem)[_-]?)?([0-9]{1,9})", stem)):
            found = [one for one in fits if re.match(rf"0*{int(number[1])}(_|$)", one.stem)]
        if "/" in wanted and len(found) > 1:
            found = [one for one in found if str(one.with_suffix("")).casefold().endswith(f"/{wanted}")]
        of_level = "" if level is None else f" of level {level}"
        if not found:
            hint = nearest(name, [one.stem for one in fits])
            raise UsageError(f"no problem {name!r}{of_level} in {one_line(str(self._folder))}.{hint}")
        if len(found) > 1:
            several = ", ".join(one_line(str(one.relative_to(self._folder))) for one in found[:4])
            raise UsageError(f"{name!r}{of_level} may be {several}: put the answer into a folder `level1` or the like")
        return self._known(found[0])

    def _known(self, path: Path) -> Problem:
        if path not in self._read:
            self._read[path] = read_problem(path)
        return self._read[path]
