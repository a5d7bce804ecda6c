"""A candidate on its way to another machine: texts instead of paths, built libraries beside them."""

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
    """What another machine needs to judge, or to build, a candidate.

    Attributes:
        work: The candidate and its cases; paths mean nothing there.
        solution: The solution's bytes.
        problem: The problem's.
        libraries: What is built of the solution, by build key.
    """

    work: PlannedWork
    solution: bytes
    problem: bytes
    libraries: dict[str, bytes]


def packed(work: PlannedWork, cache: BuildCache) -> Payload:
    """A candidate with everything that lies on this machine's disk.

    Args:
        work: The candidate; nobody builds it.
        cache: Where its libraries are kept here.

    Raises:
        HarnessError: A file cannot be read any more, or is no longer what was to be judged.
    """
    candidate = work.job.candidate
    solution, problem = candidate.solution, candidate.problem
    try:
        texts = read_source(solution.path), read_source(problem.path)
    except OSError as error:
        raise HarnessError(f"cannot read {error.filename} any more: {error.strerror}") from None
    found = hashlib.sha256(texts[0]).hexdigest(), hashlib.sha256(texts[1].removeprefix(BOM_UTF8)).hexdigest()
    for path, was, now in zip((solution.path, problem.path), (solution.digest, problem.digest), found, strict=True):
        if was != now:
            raise HarnessError(f"{path} has changed since it was read; run the command again")
    libraries = {key: path.read_bytes() for key, path in cache.libraries(solution.digest).items()}
    return Payload(work, *texts, libraries)


@contextlib.contextmanager
def unpacked(parcel: Payload, cache: BuildCache) -> Iterator[PlannedWork]:
    """The candidate with paths of this machine, for the block; its libraries are in the cache.

    Args:
        parcel: What came.
        cache: Where libraries are kept here.
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
    """Put libraries of another machine into the cache of this one.

    Args:
        libraries: By build key.
        digest: The solution's.
        cache: Where they are to be kept.
        folder: For what is on its way there; made here.
    """
    known = cache.libraries(digest)
    folder.mkdir(parents=True)
    for key, data in libraries.items():
        if key not in known:
            (folder / f"{key}.so").write_bytes(data)
            cache.keep(digest, key, folder / f"{key}.so")


def readdressed(record: EvaluationRecord, candidate: Candidate) -> EvaluationRecord:
    """A record that was made of a parcel, with the paths that the candidate has here."""
    return replace(
        record, solution_path=str(candidate.solution.path), problem_path=str(candidate.problem.path.resolve())
    )


def _written(folder: Path, path: Path, data: bytes) -> Path:
    """Write a file under its own name, into a folder that is made here."""
    folder.mkdir()
    copy = folder / path.name
    copy.write_bytes(data)
    return copy
