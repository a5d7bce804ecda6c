"""Tests the emulator's checking mode on kernels with a planted bug, and on right kernels that look wrong.

A folder is a pair, or more: ``bug.cu`` and ``right*.cu``. The head of a bug says ``// kind: K``, one of the kinds of
findings, ``// also: K`` where its accesses are a fault of another kind too, ``// arch: sm_86`` where it is a bug on
that one only, ``// order: random`` where only that order of threads shows it, and ``// exhaustive: K`` where one of all
orders shows faults of other kinds first; the lines at fault are marked ``// BUG``. Each ``run()`` is a plain CUDA
program: it allocates, launches and copies back.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.emulator.diagnostics import SourceLocator
from harness.emulator.session import CHECKED_FILLS, Fill
from harness.emulator.sources import InlineSources, SourceFile
from harness.emulator.toolchain import build_library, build_runtime

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
BUGS = sorted(HERE.glob("*/bug.cu"))
RIGHT = sorted(HERE.glob("*/right*.cu"))
ORDERS = ("forward", "reverse", "random", "exhaustive")
#: What reports say about an exploration; no faults.
NOTES = {"explored", "incomplete"}

Finding = dict[str, Any]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def header(path: Path, name: str) -> list[str]:
    return re.findall(rf"^// {name}: (\S+)$", path.read_text(), re.MULTILINE)


def lines_of(finding: Finding) -> set[int]:
    return {finding["line"], *(access["line"] for access in finding["accesses"])}


class Runner:
    """Builds planted kernels in the checking mode and asks ``serve.py`` to run them."""

    def __init__(self, folder: Path, headers: Path, server: subprocess.Popen[str]):
        self._folder = folder
        self._headers = headers
        self._server = server

    def findings(self, path: Path, orders: tuple[str, ...]) -> dict[str, list[Finding]]:
        """What the checker finds in each order of threads; every kernel must have run."""
        library = self._build(path)
        return {order: self._findings(library, (header(path, "arch") or ["sm_90"])[0], order) for order in orders}

    def run(self, path: Path, order: str) -> dict[str, Any]:
        """What a run in one order of threads tells: reports, launches, and a digest of what it copies."""
        return self._run(self._build(path), "sm_90", order, CHECKED_FILLS[0])

    def _findings(self, library: Path, arch: str, order: str) -> list[Finding]:
        ran = self._run(library, arch, order, CHECKED_FILLS[0])
        reports: list[Finding] = [report for report in ran["reports"] if report["kind"] not in NOTES]
        assert reports or ran["launches"]
        if any(report.get("is_suspicion") for report in reports):
            # As the judge does: a suspicion is a finding where the result depends on what new memory is filled with.
            others = [self._run(library, arch, order, fill)["digest"] for fill in CHECKED_FILLS[1:]]
            if all(digest == ran["digest"] for digest in others):
                return [report for report in reports if not report.get("is_suspicion")]
        return reports

    def _build(self, path: Path) -> Path:
        sources = InlineSources("planted", files=(SourceFile(path, path.read_text()),), is_python_module=False)
        return build_library(sources, self._folder, SourceLocator(path, ""), mode="check", headers=self._headers)

    def _run(self, library: Path, arch: str, order: str, fill: Fill) -> dict[str, Any]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        request = {"library": str(library), "arch": arch, "order": order, "fill": fill}
        print(json.dumps(request), file=self._server.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        assert "died" not in answer, answer
        return answer


@pytest.fixture(scope="session")
def runner(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    libraries = build_runtime(home / "emulator", with_headers=True)
    folder = tmp_path_factory.mktemp("planted")
    copies = folder / "copies.so"
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", str(HERE / "copies.cpp"), "-o", str(copies)], check=True)
    server = subprocess.Popen(
        [sys.executable, str(HERE / "serve.py"), str(home / "emulator"), str(copies)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield Runner(folder, libraries.headers, server)
    server.communicate()


def test_every_bug_has_a_twin() -> None:
    assert len(BUGS) >= 44
    assert {path.parent for path in BUGS} == {path.parent for path in RIGHT}


@pytest.mark.parametrize("path", BUGS, ids=name_of)
def test_a_planted_bug_is_found(path: Path, runner: Runner) -> None:
    (kind,) = header(path, "kind")
    marked = {number for number, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("// BUG")}
    in_order = runner.findings(path, ((header(path, "order") or ORDERS)[0], "exhaustive"))
    consequences = header(path, "exhaustive")
    for order, findings in in_order.items():
        wanted = {*consequences} if order == "exhaustive" and consequences else {kind}
        assert wanted <= {finding["kind"] for finding in findings}, in_order
    for finding in itertools.chain.from_iterable(in_order.values()):
        assert finding["kind"] in {kind, *header(path, "also"), *consequences}, finding
        assert lines_of(finding) & marked or finding["kind"] in consequences, finding
        assert finding["remedy"]
        for access in finding["accesses"] if kind != "launch" else []:
            assert len(access["thread"]) == len(access["block"]) == 3
        assert finding["accesses"] or kind == "launch"


@pytest.mark.parametrize("path", RIGHT, ids=name_of)
def test_a_look_alike_is_left_alone(path: Path, runner: Runner) -> None:
    assert runner.findings(path, ORDERS) == {order: [] for order in ORDERS}


def test_orders_are_counted_and_each_begins_with_the_same_memory(runner: Runner) -> None:
    ran = runner.run(HERE / "orders.cu", "exhaustive")
    told = {report["kernel"]: (report["kind"], report["message"].split(": ")[1]) for report in ran["reports"]}
    one, all_of = "its synchronising operations have one order", "all {} orders of its synchronising operations ran"
    assert told == {
        "tickets": ("explored", all_of.format(24)),
        "sums": ("explored", one),
        "mixed": ("explored", all_of.format(2)),
        "store_buffer": ("explored", all_of.format(3)),
        "flag": ("explored", all_of.format(2)),
        "ring": ("explored", one),
        "in_place": ("explored", all_of.format(24)),
        "many_tickets": ("incomplete", "1000 orders of its synchronising operations ran, and there are more"),
        "allocating": ("incomplete", "it allocates memory, so no orders were explored"),
        "large": ("explored", all_of.format(8)),
        "large_tickets": ("incomplete", "too many for all orders, as blocks meet in global memory"),
    }
    assert ran["digest"] == runner.run(HERE / "orders.cu", "forward")["digest"]


def test_races_that_few_orders_have_are_found(runner: Runner) -> None:
    ran = runner.run(HERE / "one_order.cu", "exhaustive")
    assert [(report["kind"], report["kernel"]) for report in ran["reports"]] == [
        ("race", "two_notes"),
        ("race", "tried_lock"),
        ("race", "halves"),
    ]


def test_a_launch_that_is_not_checked_to_its_end_is_told(runner: Runner) -> None:
    ((_, findings),) = runner.findings(HERE / "full_clock.cu", ORDERS[:1]).items()
    assert [(finding["kind"], finding["kernel"]) for finding in findings] == [("unchecked", "count")]
