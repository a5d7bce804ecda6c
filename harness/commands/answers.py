"""Turns raw answers into candidates, for ``evaluate --answers``."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from pathlib import Path

from harness.answers.choice import extract
from harness.answers.problem_set import ProblemSet
from harness.answers.samples import Sample, read_samples
from harness.errors import AnswerError, ProblemError, SolutionError, UsageError
from harness.project.problems import Problem
from harness.project.solutions import Candidate, Solution, problem_paths, read_solution
from harness.report.sample_scores import RESULTS_FILE, sample_name
from harness.system.files import is_there
from harness.system.text import one_line, printable


def candidates_of(answers: Path, problems: Path, folder: Path) -> tuple[list[Candidate], bool]:
    """Reads answers, and writes the code of each into a file, unless the answer is code alone.

    An answer without complete code becomes a candidate that raises, so that it counts as a failed
    sample and says why.

    Args:
        answers: A folder, or a file of JSON lines.
        problems: The folder of the problems, or a problem's file.
        folder: Where to write.

    Returns:
        The candidates, and whether an answer had no problem. Stderr says which.

    Raises:
        UsageError: There are no answers or no problems, or two samples have one name.
    """
    known = ProblemSet(problems)
    if beside := next(answers.rglob(RESULTS_FILE), None):
        words = "--preset kernelbench judges as KernelBench does"
        print(f"note: {printable(str(beside))} is not read: the answers are judged anew; {words}", file=sys.stderr)
    for lines in sorted(answers.rglob("*.jsonl")):
        print(f"note: {printable(str(lines))} is not read: give it to --answers by itself", file=sys.stderr)
    found: dict[str, Candidate] = {}
    places: dict[str, str] = {}
    numbers: Counter[tuple[str, Path]] = Counter()
    answered = strays = 0
    for sample in read_samples(answers):
        answered += 1
        try:
            problem = known.find(sample.problem, sample.level)
        except (UsageError, ProblemError) as error:
            print(f"error: {sample.where}: {printable(str(error))}", file=sys.stderr)
            strays += 1
            continue
        level = problem.path.parent.name if problems not in (problem.path, problem.path.parent) else ""
        number = sample.number
        if number is None:
            number = numbers[sample.model, problem.path]
            numbers[sample.model, problem.path] += 1
        name = one_line(sample_name(sample.model, level, problem.name, number))
        if name in found:
            both = f"{places[name]} and {sample.where} are both {name}"
            raise UsageError(f"{both}: give each sample of a problem a number of its own")
        places[name] = sample.where
        found[name] = Candidate(problem, _solution(sample, problem, name, folder / f"{len(found)}.py"))
    if strays:
        words = f"{strays} of {answered} answers have no problem and are not judged"
        print(f"error: {words}; docs/score-answers.md says how a path names a problem", file=sys.stderr)
    return list(found.values()), strays > 0


def problems_of(root: Path, name: str | None) -> Path:
    """Returns the folder of problems, or the problem's file, that ``--problem`` names.

    Args:
        root: The folder that holds ``problems``.
        name: A folder, a file or the name of a problem of the root; None for the root's problems.
    """
    if name is None:
        return root / "problems"
    return Path(name) if is_there(Path(name)) else problem_paths(root).get(name, Path(name))


def _solution(sample: Sample, problem: Problem, name: str, file: Path) -> Solution:
    """Reads a sample's code from its own file if that holds nothing else, else writes it to ``file``."""
    try:
        if isinstance(sample.answer, AnswerError):
            raise sample.answer
        found = extract(sample.answer)
    except AnswerError as error:
        code = f"# This answer to {problem.name} has no complete code.\nraise ImportError({str(error)!r})\n"
        origin = f"{sample.where}, which has no complete code"
    else:
        with contextlib.suppress(SolutionError):  # a line of a file is no file
            own = read_solution(Path(sample.where), name)
            if _lines(own.source) == _lines(found.code):
                return own
        code, origin = found.code, f"{sample.where}, lines {found.first}-{found.last} of the answer"
    file.write_text(code, encoding="utf-8", errors="surrogatepass")
    return read_solution(file, name, origin)


def _lines(code: str) -> list[str]:
    """Returns the lines of a text without blanks at their ends, and without empty lines around it."""
    return [line.rstrip() for line in code.strip("\r\n").splitlines()]
