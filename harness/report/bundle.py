"""Packs a record and its files into a reproduction bundle: a zip archive to repeat the evaluation from."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Mapping

from harness.errors import UsageError
from harness.executors.bundle_files import PROBLEM_FOLDER, RECORD_FILE, SOLUTION_FILE
from harness.executors.replay import constants_of
from harness.project.cases import CASES_FILE
from harness.project.problems import Problem
from harness.records.json_values import plain
from harness.records.record import EvaluationRecord
from harness.system.files import read_source
from harness.system.text import one_line

README_FILE, ENVIRONMENT_FILE = "README.txt", "environment.txt"
#: The command that repeats the evaluation, in the unpacked folder.
COMMAND = f"python -m harness evaluate --replay {RECORD_FILE}"
#: A file name that is safe on every system: no separator, no control character, no leading dot.
_SAFE = re.compile(r"\w[\w.+-]{0,99}")
#: The time of every file in the archive. The same record gives the same bytes.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def bundle(record: EvaluationRecord, problem: Problem, solution: bytes) -> bytes:
    """Returns the bundle of a record as a zip archive.

    Args:
        record: The record.
        problem: Its problem, with the text that it had then.
        solution: The exact text of the solution that it judged.

    Raises:
        UsageError: The problem's cases have changed, or its name is not safe in an archive.
        OSError: ``cases.toml`` cannot be read.
    """
    _check_case(record, problem)
    folder = f"bundle-{record.record if _SAFE.fullmatch(record.record) else 'record'}"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _files(record, problem, solution).items():
            entry = zipfile.ZipInfo(f"{folder}/{name}", _NO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def _files(record: EvaluationRecord, problem: Problem, solution: bytes) -> Mapping[str, bytes]:
    name = f"{_file_stem(problem)}.py"
    files = {
        README_FILE: "\n".join([*_readme(record, name), ""]).encode("utf-8", "backslashreplace"),
        RECORD_FILE: f"{record.to_json()}\n".encode(),
        SOLUTION_FILE: solution,
        f"{PROBLEM_FOLDER}/{name}": problem.source.encode(),
        ENVIRONMENT_FILE: "".join(f"{line}\n" for line in _environment(record)).encode("utf-8", "backslashreplace"),
    }
    if problem.beside is not None:
        files[f"{PROBLEM_FOLDER}/{CASES_FILE}"] = read_source(problem.path.parent / CASES_FILE)
    return files


def _file_stem(problem: Problem) -> str:
    """Returns the problem's name as a file name of the archive.

    Raises:
        UsageError: The name is not safe, and the cases in ``cases.toml`` depend on it.
    """
    if _SAFE.fullmatch(problem.name):
        return problem.name
    if problem.beside is None:
        return "problem"
    raise UsageError(
        f"the name of {one_line(str(problem.path))} is not safe in an archive, and {CASES_FILE} declares its cases "
        "under that name: rename both"
    )


def _check_case(record: EvaluationRecord, problem: Problem) -> None:
    """Checks that the case still has the constants of the record.

    The problem's digest does not cover ``cases.toml``.

    Raises:
        UsageError: It has others.
    """
    now = plain(constants_of(record, problem))
    if now != plain(record.constants):
        place = problem.path.parent / CASES_FILE if problem.beside is not None else problem.path
        raise UsageError(
            f"record {record.record}: its case {record.case} has changed: {one_line(str(place))} sets "
            f"{_settings(now)}, but the record was made with {_settings(plain(record.constants))}"
        )


def _settings(constants: Mapping[str, object]) -> str:
    return one_line(", ".join(f"{name}={value!r}" for name, value in constants.items()) or "nothing")


def _readme(record: EvaluationRecord, problem_file: str) -> Iterator[str]:
    yield f"Reproduction bundle of record {one_line(record.record)}"
    yield ""
    yield one_line(f"{record.solution} on {record.problem}, case {record.case}, {record.device}: {record.verdict}")
    yield one_line(f"judged {record.created_at} with seed {record.seed}")
    yield ""
    yield "To repeat the evaluation, install kernel-harness and run this command in the folder of this file:"
    yield ""
    yield f"    {COMMAND}"
    yield ""
    yield "It judges the same text on the same case, with the same options and seeds. Then it says whether the"
    yield "result is the same. Exit code 0 means the same verdict, and 1 another one. Add --device cpu to repeat it"
    yield "without a GPU. Results are equal bit for bit only in the environment that is listed below."
    yield ""
    yield "Read the files first if you do not trust their sender. The harness confines the solution, but it runs"
    yield "the problem as its own code. The record chooses the rules and the time limits."
    yield ""
    yield f"{RECORD_FILE}  the record, on one line"
    yield f"{SOLUTION_FILE}  the solution, byte for byte as it was judged"
    yield f"{PROBLEM_FOLDER}/{problem_file}  the problem"
    yield f"{ENVIRONMENT_FILE}  the versions below"
    yield ""
    yield "The environment of the record:"
    yield ""
    yield from (f"    {line}" for line in _environment(record))


def _environment(record: EvaluationRecord) -> Iterator[str]:
    width = max(map(len, record.environment), default=0)
    for name, value in record.environment.items():
        yield one_line(f"{name:{width}}  {value}")
