"""The judge's hold on its worker, where the harness itself is at fault."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from harness.build.cache import BuildCache
from harness.judge.evaluation import CandidateJudge, Policy, Surroundings
from harness.judge.handle import Limits, Workers
from harness.problems import read_problem
from harness.records import Status
from harness.solutions import Candidate, read_solution

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_worker_that_cannot_start_is_the_harness_fault_and_says_why(tmp_path: Path) -> None:
    candidate = Candidate(
        read_problem(REPOSITORY / "problems" / "group_norm.py"),
        read_solution(REPOSITORY / "tests" / "faults" / "group_norm.py", "plain"),
    )
    nowhere = str(tmp_path / "libcuemu.so")
    surroundings = Surroundings(BuildCache(tmp_path), tmp_path, tmp_path, {})
    workers = Workers("cpu", {"core": nowhere, "torch": nowhere}, None)
    with contextlib.closing(
        CandidateJudge(candidate, Policy("cpu", "00", Limits(60, 300)), surroundings, workers)
    ) as judge:
        record = judge.evaluate("odd", candidate.problem.case("odd"))
    assert record.status is Status.HARNESS_ERROR
    assert nowhere in record.message


def test_the_cache_takes_plain_files_under_well_formed_keys_alone(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path / "builds")
    built = tmp_path / "built.so"
    built.write_bytes(b"library")
    link = tmp_path / "link.so"
    link.symlink_to(built)
    key = "a" * 64
    assert not cache.keep("digest", "../escape", built)
    assert not cache.keep("digest", key, link)
    assert not cache.keep("digest", key, tmp_path)
    assert not cache.keep("digest", key, tmp_path / "missing.so")
    # What only the judge can read must not be fetched through a link in place of the worker's folder.
    secrets = tmp_path / "home" / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "id").write_bytes(b"secret")
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "build").symlink_to(secrets)
    assert not cache.keep("digest", key, tmp_path / "worker" / "build" / "id")
    os.link(secrets / "id", tmp_path / "id.so")
    assert not cache.keep("digest", key, tmp_path / "id.so")
    assert cache.libraries("digest") == {}
    assert cache.keep("digest", key, built)
    assert cache.libraries("digest")[key].read_bytes() == b"library"
    assert cache.libraries("other digest") == {}
