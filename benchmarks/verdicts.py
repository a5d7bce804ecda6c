"""How often is the judge wrong? Candidates whose verdict is known are judged, and the verdicts counted.

    python -m benchmarks.verdicts --device cpu --jobs 2 --json verdicts.json

Three studies, over all problems:

- ``honest``: float32 with other arithmetic (``benchmarks/variants/honest.py``), and the problems' own solutions, must
  pass, without a finding that decides a verdict. Whoever is refused is so by mistake.
- ``wrong``: subtly wrong candidates (``benchmarks/variants/wrong.py``) must be refused for what they return:
  WRONG_OUTPUT or WRONG_GRADIENT. Another end, such as CRASHED, proves nothing.
- ``rounded``: operands of a lower precision class (``benchmarks/variants/rounded.py``) must pass where the problem
  allows it, and else be refused, the class that is named first, the output's, being theirs.

An evaluation is one candidate on one case under one seed; there are ``--evaluations`` of the first two, a quarter as
many of the third, each problem with the same number. Its kinds are gone through in rounds, and the cases with them,
small ones first; every round has a seed of its own (1, 2, ... in hex), so that a run can be repeated. Solutions are
judged once, beyond that number. Judged is by ``python -m harness evaluate``, several files a command. Prints a table
for each study, what is not as expected, and the rates with their 95 % upper bounds. Exit code 1 where something is not
as expected or nothing was judged, 2 where the call is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import Budget, count, positive, program, save, say, table
from benchmarks.variants import honest, rounded, wrong
from benchmarks.variants.kind import PROBLEMS, Kind, write
from harness.device import devices
from harness.errors import UsageError
from harness.judge.inputs.memory_fit import size_of
from harness.project.paths import project_root
from harness.project.problems import Problem
from harness.project.solutions import find_problem, solution_paths
from harness.records.record import ERROR, PrecisionClass, Status

STUDIES = {"honest": honest.kinds_of, "wrong": wrong.kinds_of, "rounded": rounded.kinds_of}
#: One in so many of the evaluations of the others is of the study ``rounded``.
ROUNDED_SHARE = 4
#: Kinds that meet the same case in a round: files of one command start faster than commands.
TOGETHER = 5
#: What a rate's upper bound may be exceeded by chance with.
CONFIDENCE = 0.95
#: A candidate's time; many commands at once are slow, which is nobody's fault.
TIMEOUT_S = 600
#: What is said of a wrong candidate.
REFUSALS = (Status.WRONG_OUTPUT, Status.WRONG_GRADIENT)


@dataclass(frozen=True)
class Batch:
    """What one command judges.

    Attributes:
        study: Name of the study.
        problem: The problem.
        case: The case's name.
        seed: The secret, in hex.
        files: The kinds by path; None for a solution of the project's own.
    """

    study: str
    problem: Problem
    case: str
    seed: str
    files: dict[Path, Kind | None]


@dataclass(frozen=True)
class Row:
    """One evaluation.

    Attributes:
        study, problem, kind, case, seed: What was judged.
        status: How it ended; ``no record`` where the command came to none.
        expected: Whether that is as it must be.
        share: The largest error over its budget, infinite where there was none to compare; None where nothing was.
        named: The precision class that the message names first.
        findings: Kinds of findings that decide a verdict.
        message: The record's first line.
        seconds: From command to verdict.
    """

    study: str
    problem: str
    kind: str
    case: str
    seed: str
    status: str
    expected: bool
    share: float | None
    named: str | None
    findings: tuple[str, ...]
    message: str
    seconds: float


def upper_bound(events: int, total: int) -> float:
    """The exact upper bound of a probability (Clopper and Pearson, one-sided): 3 / total, nearly, without an event."""
    if events >= total:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        below = sum(
            math.exp(math.log(math.comb(total, k)) + k * math.log(middle) + (total - k) * math.log1p(-middle))
            for k in range(events + 1)
        )
        low, high = (middle, high) if below > 1 - CONFIDENCE else (low, middle)
    return high


def as_expected(study: str, kind: Kind | None, problem: Problem, record: dict[str, Any]) -> bool:
    """Whether a record's verdict is the known one.

    Args:
        study: One of ``STUDIES``.
        kind: The candidate's kind; None for a solution.
        problem: The problem.
        record: The record.
    """
    status = record["status"]
    if study == "wrong":
        return status in REFUSALS
    if study == "rounded" and kind is not None and kind.precision is not None:
        classes = list(PrecisionClass)
        if classes.index(PrecisionClass(kind.precision)) > classes.index(problem.precision):
            return status in REFUSALS and named_class(record) == kind.precision
    return status == Status.PASSED and not deciding(record)


def named_class(record: dict[str, Any]) -> str | None:
    """The precision class that a message's first line names, which is of the output where that is wrong; else None."""
    named = re.search(r"its precision is of class (\S+),", record["message"].partition("\n")[0])
    return named[1] if named else None


def deciding(record: dict[str, Any]) -> tuple[str, ...]:
    """Kinds of the findings that decide a verdict."""
    return tuple(finding["kind"] for finding in record["findings"] if finding["level"] == ERROR)


def plan(
    study: str, problem: Problem, cases: Sequence[str], kinds: Sequence[Kind], evaluations: int
) -> Iterator[tuple[str, str, Kind]]:
    """Case, seed and kind of each evaluation of a problem, round by round."""
    blocks = -(-len(kinds) // TOGETHER)
    stride = next(stride for stride in itertools.count(blocks) if math.gcd(stride, len(cases)) == 1)  # all are met
    for number in range(evaluations):
        turn, place = divmod(number, len(kinds))
        first = (turn * stride + place // TOGETHER) % len(cases)
        allowed = [case for case in (*cases[first:], *cases[:first]) if case not in kinds[place].but]
        if not allowed:
            raise UsageError(f"{problem.name}: {kinds[place].name} is no {study} candidate in any of these cases")
        yield allowed[0], f"{turn + 1:x}", kinds[place]


def batches_of(options: argparse.Namespace, root: Path, study: str, problem: Problem, folder: Path) -> list[Batch]:
    """What is judged of a problem in a study; files are written."""
    on_gpu = devices.guess(options.device) != "cpu"
    kinds = [kind for kind in STUDIES[study](problem.name) if on_gpu or kind.device != "cuda"]
    if options.kind:
        kinds = [kind for kind in kinds if kind.name in options.kind]
    cases = [case for case in options.case or problem.cases if case in problem.cases]
    if not options.case:
        cases = [case for case in cases if case != "full"] or cases
    sizes = {case: size_of(problem, problem.case(case)) for case in cases}
    cases.sort(key=lambda case: math.inf if (size := sizes[case]) is None else size.elements)
    if not kinds or not cases:
        return []
    share = ROUNDED_SHARE if study == "rounded" else 1
    wanted = -(-options.evaluations // (share * len(options.problems)))
    place = folder / study / problem.name
    place.mkdir(parents=True)
    paths = write(problem.name, kinds, place)
    grouped: dict[tuple[str, str], dict[Path, Kind | None]] = {}
    for case, seed, kind in plan(study, problem, cases, kinds, wanted):
        grouped.setdefault((case, seed), {})[paths[kind.name]] = kind
    batches = [Batch(study, problem, case, seed, files) for (case, seed), files in grouped.items()]
    own = solution_paths(root, problem.name).values() if study == "honest" and options.solutions else ()
    if own:
        batches.append(Batch(study, problem, cases[0], "1", dict.fromkeys(own)))
    return batches


def judged(batch: Batch, options: argparse.Namespace, root: Path, home: Path) -> list[Row]:
    """Judge the files of a batch by one command; a row for each."""
    command = [sys.executable, "-m", "harness", "evaluate", *map(str, batch.files), "--problem", batch.problem.name]
    command += ["--case", batch.case, "--seed", batch.seed, "--device", options.device, "--fresh", "--json"]
    command += ["--root", str(root), "--home", str(home), "--timeout", str(TIMEOUT_S)]
    command += ["--no-timing"] * (options.jobs > 1)
    # Threads of several commands that wait for each other on too few cores wait long.
    threads = str(max(1, (os.cpu_count() or 1) // options.jobs))
    ran = subprocess.run(command, env={"OMP_NUM_THREADS": threads, **os.environ}, capture_output=True, text=True)
    records = {record["solution_path"]: record for record in map(json.loads, ran.stdout.splitlines())}
    return [_row(batch, path, records.get(str(path)), ran.stderr) for path in batch.files]


def _row(batch: Batch, path: Path, record: dict[str, Any] | None, errors: str) -> Row:
    kind = batch.files[path]
    name = kind.name if kind else f"{batch.problem.name}/{path.stem}"
    names = (batch.study, batch.problem.name, name, batch.case, batch.seed)
    if record is None:
        return Row(*names, "no record", False, None, None, (), " ".join(errors.split("\n")[-3:]), 0.0)
    shares = [float(one["share"]) for one in (*record["outputs"], *record["gradients"]) if one["share"] is not None]
    return Row(
        *names,
        record["status"],
        as_expected(batch.study, kind, batch.problem, record),
        max(shares, default=None),
        named_class(record),
        deciding(record),
        record["message"].partition("\n")[0],
        record["total_s"],
    )


def study_table(rows: Sequence[Row]) -> str:
    """A row for each kind: evaluations by problem, how they ended, and how near to its budget it was.

    For who is to pass that is the largest error over its budget, for the others the least of what they reached.
    """
    header = ["kind", "problems", "cases", "evaluations", "as expected", "ended", "error over budget"]
    lines = []
    for name in dict.fromkeys(row.kind for row in rows):
        mine = [row for row in rows if row.kind == name]
        ends = [f"{row.status}, {row.named}" if row.named and row.study == "rounded" else row.status for row in mine]
        shares = [row.share for row in mine if row.share is not None]
        low, high = min(shares, default=math.nan), max(shares, default=math.nan)
        lines.append(
            [
                name,
                len({row.problem for row in mine}),
                len({(row.problem, row.case) for row in mine}),
                len(mine),
                sum(row.expected for row in mine),
                "; ".join(f"{ends.count(end)} {end}" for end in dict.fromkeys(ends)),
                f"{low:.2g} to {high:.2g}",
            ]
        )
    return table(header, lines)


def rate_table(rows: Sequence[Row]) -> str:
    """A row for each study: candidates, cases, evaluations, those not as expected, the rate and its upper bound."""
    header = ["study", "candidates", "cases", "evaluations", "not as expected", "rate", "95 % upper bound"]
    lines = []
    for study in dict.fromkeys(row.study for row in rows):
        mine = [row for row in rows if row.study == study]
        bad = sum(not row.expected for row in mine)
        lines.append(
            [
                study,
                len({(row.problem, row.kind) for row in mine}),
                len({(row.problem, row.case) for row in mine}),
                len(mine),
                bad,
                f"{bad / len(mine):.2%}",
                f"{upper_bound(bad, len(mine)):.2%}",
            ]
        )
    return table(header, lines)


def report(rows: Sequence[Row]) -> str:
    """All tables, and a line for each evaluation that is not as expected."""
    parts = []
    for study in STUDIES:
        mine = [row for row in rows if row.study == study]
        if mine:
            parts.append(f"### {study}\n\n{study_table(mine)}")
    for row in rows:
        if not row.expected:
            parts.append(f"not as expected: {_words(row)}: {row.message}\n")
    return "\n".join([*parts, rate_table(rows)])


def _words(row: Row) -> str:
    found = f", findings {', '.join(row.findings)}" if row.findings else ""
    return f"{row.study}, {row.problem}, {row.kind}, {row.case}, seed {row.seed}: {row.status}{found}"


def run(options: argparse.Namespace, root: Path, home: Path, folder: Path, found: list[Row]) -> None:
    """Judge everything; rows go to ``found`` as they come."""
    budget = Budget(options.budget_s)
    problems = [find_problem(root, name) for name in options.problems]
    of_problems = [
        batches_of(options, root, study, problem, folder) for study in options.studies for problem in problems
    ]
    # In turns, so that a run whose budget ends early has some of everything.
    longest = max(map(len, of_problems), default=0)
    batches = [batches[turn] for turn in range(longest) for batches in of_problems if turn < len(batches)]
    total = sum(len(batch.files) for batch in batches)
    lock = threading.Lock()
    began = time.monotonic()

    def work(batch: Batch) -> None:
        if budget.is_spent:
            return
        rows = judged(batch, options, root, home)
        with lock:
            found.extend(rows)
            bad = [row for row in rows if not row.expected]
            passed = time.monotonic() - began
            say(f"{len(found)} of {total}, {passed:.0f} s: {batch.study}, {batch.problem.name}, {batch.case}")
            for row in bad:
                say(f"not as expected: {_words(row)}: {row.message}")
            save(options.json, {"seconds": passed, "planned": total, "rows": [asdict(row) for row in found]})

    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(work, batch) for batch in batches]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    say(f"{len(found)} evaluations of {total} in {time.monotonic() - began:.0f} s")


def arguments() -> argparse.ArgumentParser:
    """The script's options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("problems", nargs="*", help=f"(default: {', '.join(PROBLEMS)})")
    made.add_argument("--study", dest="studies", action="append", choices=STUDIES, help="(default: all three)")
    made.add_argument("--kind", action="append", help="only this kind; repeatable")
    made.add_argument("--case", action="append", help="only this case; repeatable (default: all but full)")
    made.add_argument("--evaluations", type=count, default=200, help="honest ones, and wrong ones (default: 200)")
    made.add_argument("--no-solutions", dest="solutions", action="store_false", help="leave out the project's own")
    made.add_argument("--device", default="auto")
    made.add_argument("--jobs", type=count, default=1, help="commands at a time; of several none is timed (default: 1)")
    made.add_argument("--budget-s", type=positive, help="begin nothing more after so many seconds")
    made.add_argument("--json", type=Path, metavar="FILE", help="write every evaluation there, after each command")
    made.add_argument("--root", help="folder with problems/ and solutions/ (default: as the harness's)")
    made.add_argument("--home", type=Path, help="HARNESS_HOME (default: a temporary one, removed at the end)")
    return made


def main() -> int:
    """Run from the command line; the exit code."""
    options = arguments().parse_args()
    options.problems = options.problems or list(PROBLEMS)
    options.studies = options.studies or list(STUDIES)

    def work() -> int:
        unknown = set(options.problems) - set(PROBLEMS)
        if unknown:
            raise UsageError(f"no variants of {', '.join(sorted(unknown))}; there are some of {', '.join(PROBLEMS)}")
        found: list[Row] = []
        with tempfile.TemporaryDirectory() as folder:
            home = options.home or Path(folder) / "home"
            # The worker may be another user, who is to read the files.
            Path(folder).chmod(0o755)
            try:
                run(options, project_root(options.root), home, Path(folder), found)
            finally:  # what there is by then is worth its time
                if found:
                    print(report(found), flush=True)
        return 0 if found and all(row.expected for row in found) else 1

    return program(work)


if __name__ == "__main__":
    sys.exit(main())
