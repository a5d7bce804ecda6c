"""A candidate packed for another machine: its texts and built libraries instead of paths."""

from __future__ import annotations

import contextlib
import hashlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harness.compilation.cache import BuildCache
from harness.errors import HarnessError
from harness.executors.prebuild import PlannedWork
from harness.project.solutions import Candidate
from harness.records.record import EvaluationRecord
from harness.system.files import read_source
from harness.system.scratch import scratch_folder


@dataclass(frozen=True)
class Payload:
    """The data that another machine needs to judge or build a candidate.

    Attributes:
        work: The candidate and its cases; its paths are not valid on the other machine.
        solution: The bytes of the solution's file.
        problem: The bytes of the problem's file.
        libraries: The solution's built libraries, by build key.
    """

    work: PlannedWork
    solution: bytes
    problem: bytes
    libraries: dict[str, bytes]


def packed(work: PlannedWork, cache: BuildCache) -> Payload:
    """Returns a candidate with its files and libraries from this machine's disk.

    Args:
        work: The candidate; no build of it may be running.
        cache: The build cache on this machine.

    Raises:
        HarnessError: A file cannot be read any more, or has changed since the harness read it.
    """
    candidate = work.job.candidate
    solution, problem = candidate.solution, candidate.problem
    try:
        texts = read_source(solution.path), read_source(problem.path)
    except OSError as error:
        raise HarnessError(f"cannot read {error.filename} again: {error.strerror}") from None
    found = hashlib.sha256(texts[0]).hexdigest(), hashlib.sha256(texts[1].removeprefix(BOM_UTF8)).hexdigest()
    for path, was, now in zip((solution.path, problem.path), (solution.digest, problem.digest), found, strict=True):
        if was != now:
            raise HarnessError(f"{path} changed after it was read; run the command again")
    libraries = {key: path.read_bytes() for key, path in cache.libraries(solution.digest).items()}
    return Payload(work, *texts, libraries)


@contextlib.contextmanager
def unpacked(parcel: Payload, cache: BuildCache) -> Iterator[PlannedWork]:
    """Writes a payload to this machine's disk for the block, and its libraries into the cache.

    Args:
        parcel: The payload.
        cache: The build cache on this machine.

    Yields:
        The candidate with paths of this machine.
    """
    work = parcel.work
    candidate = work.job.candidate
    with scratch_folder("harness-parcel-") as folder:
        keep(parcel.libraries, candidate.solution.digest, cache, folder / "libraries")
        solution = _written(folder / "solution", candidate.solution.path, parcel.solution)
        problem = _written(folder / "problem", candidate.problem.path, parcel.problem)
        here = Candidate(replace(candidate.problem, path=problem), replace(candidate.solution, path=solution))
        yield replace(work, job=replace(work.job, candidate=here))


def keep(libraries: dict[str, bytes], digest: str, cache: BuildCache, folder: Path) -> None:
    """Puts libraries from another machine into this machine's build cache.

    Args:
        libraries: The libraries by build key.
        digest: The solution's digest.
        cache: The build cache.
        folder: A folder for temporary files; ``keep`` makes it.
    """
    known = cache.libraries(digest)
    folder.mkdir(parents=True)
    for key, data in libraries.items():
        if key not in known:
            (folder / f"{key}.so").write_bytes(data)
            cache.keep(digest, key, folder / f"{key}.so")


def readdressed(record: EvaluationRecord, candidate: Candidate) -> EvaluationRecord:
    """Returns a record from another machine with the candidate's paths on this machine."""
    return replace(record, solution_path=candidate.solution.place, problem_path=str(candidate.problem.path.resolve()))


def _written(folder: Path, path: Path, data: bytes) -> Path:
    """Makes a folder, writes a file into it under its own name, and returns the file's path."""
    folder.mkdir()
    copy = folder / path.name
    copy.write_bytes(data)
    return copy
