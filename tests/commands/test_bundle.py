"""Tests ``bundle``: an unpacked bundle repeats the evaluation where nothing else of it is."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.emulator.toolchain import build_runtime
from harness.records.record import EvaluationRecord
from harness.records.store import Store

Harness = Callable[..., Any]
PROBLEM = """
import torch, torch.nn as nn

shape = (6, 3)


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(shape)]


def get_init_inputs():
    return []
"""
HONEST = PROBLEM.replace("Model(nn", "ModelNew(nn")
#: No UTF-8: the bundle must have its bytes as they were.
WRONG = f"# -*- coding: latin-1 -*-\n# caf\xe9\n{HONEST.replace('torch.tanh', 'torch.sin')}".encode("latin-1")
CASES = "[tiny.full]\n[tiny.odd]\nshape = [5, 2]\n[other.full]\nn = 3\n"


class Place:
    """A root with a problem and two solutions, each judged once on the case ``odd``.

    Attributes:
        rows: What came of it, by solution.
    """

    def __init__(self, harness: Harness, folder: Path, home: Path):
        self._harness, self._emulator = harness, home / "emulator"
        self.folder, self.home = folder, self.new_home(folder / "home")
        build_runtime(self._emulator)
        self.problem = folder / "root" / "problems" / "tiny.py"
        self.cases = self.problem.with_name("cases.toml")
        self.problem.parent.mkdir(parents=True)
        self.problem.write_text(PROBLEM)
        self.cases.write_text(CASES)
        (folder / "honest.py").write_text(HONEST)
        (folder / "wrong.py").write_bytes(WRONG)
        ran = self(
            *("evaluate", folder / "honest.py", folder / "wrong.py", "--problem", self.problem),
            *("--case", "odd", "--json", "--seed", "abcdef"),
        )
        self.rows = {Path(row["solution_path"]).stem: row for row in ran.rows}

    def new_home(self, home: Path) -> Path:
        """A home without a record; only the emulator's runtime is built."""
        home.mkdir()
        (home / "emulator").symlink_to(self._emulator)
        return home

    def __call__(self, *arguments: str | Path, **more: Any) -> Any:
        environment = {"HARNESS_HOME": str(self.home), "HARNESS_DEVICE": "cpu", **more}
        return self._harness(*arguments, **{"cwd": self.folder, **environment})

    def bundled(self, name: str, path: Path, *options: str | Path) -> Any:
        return self("bundle", self.rows[name]["record"][:8], "-o", path, *options)

    @contextlib.contextmanager
    def moved_away(self) -> Iterator[None]:
        """Takes the original files away for the block, as on another machine."""
        aside = self.folder / "aside"
        aside.mkdir()
        for name in ("root", "honest.py", "wrong.py"):
            (self.folder / name).rename(aside / name)
        try:
            yield
        finally:
            for path in aside.iterdir():
                path.rename(self.folder / path.name)
            aside.rmdir()

    def unpacked(self, name: str, folder: Path) -> Path:
        """The folder of an unpacked bundle."""
        ran = self.bundled(name, folder / "bundle.zip")
        assert (ran.code, ran.out) == (0, ""), ran.err
        shutil.unpack_archive(folder / "bundle.zip", folder / "unpacked")
        (found,) = (folder / "unpacked").iterdir()
        return found


@pytest.fixture(scope="module")
def place(harness: Harness, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The place."""
    return Place(harness, tmp_path_factory.mktemp("bundle"), home)


@pytest.mark.parametrize(("name", "status"), [("honest", "PASSED"), ("wrong", "WRONG_OUTPUT")])
def test_an_unpacked_bundle_gives_the_same_verdict_elsewhere(
    place: Place, name: str, status: str, tmp_path: Path
) -> None:
    folder = place.unpacked(name, tmp_path)
    (command,) = re.findall(r"^    python -m harness (.+)$", (folder / "README.txt").read_text(), re.MULTILINE)
    home = str(place.new_home(tmp_path / "home"))
    with place.moved_away():
        ran = place(*command.split(), "--json", cwd=folder, HARNESS_HOME=home)
    assert ran.code == 0, ran.out + ran.err
    (row,) = ran.rows
    before = place.rows[name]
    assert (row["status"], row["replay"]["outcome"], row["replay"]["of"]) == (status, "identical", before["record"])
    for key in ("outputs", "gradients", "digests", "seed", "own_seed", "digest", "problem_digest", "constants"):
        assert row[key] == before[key], key


def test_the_bundle_holds_what_was_judged(place: Place, tmp_path: Path) -> None:
    before = place.rows["wrong"]
    (place.folder / "wrong.py").write_text("gone = True\n")
    try:
        folder = place.unpacked("wrong", tmp_path)
    finally:
        (place.folder / "wrong.py").write_bytes(WRONG)
    assert (folder / "solution.py").read_bytes() == WRONG
    assert (folder / "problem" / "tiny.py").read_text() == PROBLEM
    assert (folder / "problem" / "cases.toml").read_text() == CASES
    assert json.loads((folder / "record.json").read_text())["record"] == before["record"]
    versions = dict(line.split(maxsplit=1) for line in (folder / "environment.txt").read_text().splitlines())
    assert versions == before["environment"]
    first = (tmp_path / "bundle.zip").read_bytes()
    assert place.bundled("wrong", tmp_path / "bundle.zip").code == 0  # replaces it
    assert (tmp_path / "bundle.zip").read_bytes() == first


def test_a_bundle_that_was_tampered_with_is_not_judged(place: Place, tmp_path: Path) -> None:
    folder = place.unpacked("wrong", tmp_path)
    home = str(place.new_home(tmp_path / "home"))
    (folder / "solution.py").write_text(HONEST)
    with place.moved_away():
        ran = place("evaluate", "--replay", "record.json", cwd=folder, HARNESS_HOME=home)
        assert (ran.code, ran.out, "does not have its exact text" in ran.err) == (2, "", True)
        (folder / "problem" / "tiny.py").write_text(PROBLEM + "# changed\n")
        ran = place("evaluate", "--replay", "record.json", cwd=folder, HARNESS_HOME=home)
        assert (ran.code, "its problem has changed" in ran.err) == (2, True)


def test_a_case_that_the_harness_chose_is_repeated(place: Place, tmp_path: Path) -> None:
    """The problem declares no cases, and its own size does not fit the CPU."""
    (tmp_path / "large.py").write_text(PROBLEM.replace("(6, 3)", "(40000, 4000)"))
    (tmp_path / "mine.py").write_text(HONEST.replace("(6, 3)", "(40000, 4000)"))
    options = ("--problem", "large.py", "--json", "--forward-only")
    (before,) = place("evaluate", "mine.py", *options, cwd=tmp_path).rows
    assert (before["case"], before["status"]) == ("small", "PASSED")
    ran = place("bundle", before["record"], "-o", tmp_path / "small.zip", cwd=tmp_path)
    assert ran.code == 0, ran.err
    shutil.unpack_archive(tmp_path / "small.zip", tmp_path / "unpacked")
    (tmp_path / "large.py").unlink()
    (folder,) = (tmp_path / "unpacked").iterdir()
    (row,) = place("evaluate", "--replay", "record.json", "--json", cwd=folder).rows
    assert (row["replay"]["outcome"], row["case"], row["constants"]) == ("identical", "small", before["constants"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": "\udcff"}, "its seeds are not hexadecimal"),
        ({"seed": ""}, "its seeds are not hexadecimal"),
        ({"own_seed": "x\x1b[31m"}, "its seeds are not hexadecimal"),
        ({"policy": {"check": "sm_1"}}, "knows no check 'sm_1'"),
        ({"policy": {"precision": "any"}}, "knows no precision 'any'"),
        ({"policy": {"preset": "mine"}}, "knows no preset 'mine'"),
        ({"policy": {"tf32": "maybe"}}, "knows no tf32 'maybe'"),
        ({"policy": {"baselines": ["none"]}}, "must be one of eager"),
        ({"case": "none"}, "has no case 'none'"),
        ({"case": "custom", "settings": ["shape=__import__('os')"]}, "is not a Python literal"),
        ({"case": "custom", "constants": {"__class__": 1}}, "has no constant '__class__'"),
        ({"device": "evil"}, "--device 'evil'"),
    ],
)
def test_a_record_that_was_tampered_with_is_refused(
    place: Place, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    (tmp_path / "record.json").write_text(json.dumps({**place.rows["honest"], "settings": [], **changes}))
    ran = place("evaluate", "--replay", tmp_path / "record.json", "--device", changes.get("device", "cpu"))
    assert (ran.code, ran.out, words in ran.err, "Traceback" in ran.err) == (2, "", True, False), ran.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no records"),
        ("{}", "no 'version'"),
        ("[" * 100_000, "not JSON"),
        ('{"version": 99}', "upgrade the harness"),
    ],
)
def test_a_file_that_is_no_record_is_refused(place: Place, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "record.json").write_text(text)
    ran = place("evaluate", "--replay", tmp_path / "record.json")
    assert (ran.code, ran.out, words in ran.err, "Traceback" in ran.err) == (2, "", True, False)


def test_a_changed_problem_is_not_bundled(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "bundle.zip"
    (tmp_path / "tiny.py").write_text(PROBLEM)
    (tmp_path / "cases.toml").write_text(CASES)
    try:
        place.problem.write_text(PROBLEM + "# changed\n")
        ran = place.bundled("honest", output)
        assert (ran.code, "its problem has changed" in ran.err, output.exists()) == (2, True, False)
        assert place.bundled("honest", output, "--problem", tmp_path / "tiny.py").code == 0
        output.unlink()
        place.problem.write_text(PROBLEM)
        place.cases.write_text(CASES.replace("[5, 2]", "[4, 2]"))
        ran = place.bundled("honest", output)
        assert (ran.code, output.exists()) == (2, False)
        assert "its case odd has changed" in ran.err
        assert "cases.toml sets shape=[4, 2], but the record was made with shape=[5, 2]" in ran.err
        place.problem.unlink()
        ran = place.bundled("honest", output)
        assert (ran.code, "is missing" in ran.err, output.exists()) == (2, True, False)
    finally:
        place.problem.write_text(PROBLEM)
        place.cases.write_text(CASES)


def test_only_a_regular_file_is_written(place: Place, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "folder", "it is a folder, not a file"),
        (tmp_path / "pipe", "it is a pipe, not a file"),
        (tmp_path / "none" / "bundle.zip", "there is no folder"),
        (Path("/dev/null"), "it is a device, not a file"),
    ):
        ran = place.bundled("honest", path)
        assert (ran.code, ran.out, words in ran.err) == (2, "", True), ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]
    ran = place("bundle", "ffffffffffff", "-o", tmp_path / "bundle.zip")
    assert (ran.code, "no record 'ffffffffffff'" in ran.err) == (2, True)


def test_no_name_of_a_record_reaches_the_archive(place: Place, tmp_path: Path) -> None:
    """Names of a record are anyone's, since stores can be merged."""
    evil = tmp_path / "..\\..\\e\x1bvil.py"
    evil.write_text(PROBLEM)
    record = EvaluationRecord.from_json(json.dumps(place.rows["honest"]))
    record = replace(
        record,
        record="aaaa/../../../evil",
        problem="../../evil",
        solution="/etc/\x1b[31mpasswd\nnext line",
        solution_path="../../../evil.py",
        problem_path=str(evil),
        case="full",
        constants={},
        environment={"torch": "2\x1b[31m", "../x": "y"},
    )
    home = place.new_home(tmp_path / "home")
    with Store(home, writable=True) as store:
        store.add(record, HONEST)
    assert record.digest == hashlib.sha256(HONEST.encode()).hexdigest()
    ran = place("bundle", "aaaa", "-o", tmp_path / "bundle.zip", HARNESS_HOME=str(home))
    assert ran.code == 0, ran.err
    with zipfile.ZipFile(tmp_path / "bundle.zip") as archive:
        assert archive.namelist() == [
            f"bundle-record/{name}"
            for name in ("README.txt", "record.json", "solution.py", "problem/problem.py", "environment.txt")
        ]
        for name in ("README.txt", "environment.txt", "record.json"):
            assert b"\x1b" not in archive.read(f"bundle-record/{name}")
    (tmp_path / "cases.toml").write_text(f"[{json.dumps(evil.stem)}.full]\n")
    ran = place("bundle", "aaaa", "-o", tmp_path / "again.zip", HARNESS_HOME=str(home))
    assert (ran.code, "is not safe in an archive" in ran.err) == (2, True), ran.err
