"""Tests that a candidate that fills the disk is stopped, and that its files are removed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
#: Honest in what it computes; at its import it does something else too.
SOLUTION = """
import os, pathlib, signal, tempfile
import torch.nn as nn

folder = pathlib.Path.home()
{does}


class ModelNew(nn.Module):
    def forward(self, x):
        return x * 2
"""
#: Files with holes: they take no room here, and count as what they could become.
LARGE_FILES = """
for number in range({count}):
    os.truncate(tempfile.mkstemp()[1], (2 << 30) - 1)
"""
MANY_FILES = """
for number in range({count}):
    (folder / str(number)).touch()
"""
WAITS = "signal.pause()\n"
NO_NAME = """
with tempfile.TemporaryFile() as file:
    for _ in range({mebibytes}):
        file.write(bytes(1 << 20))
    file.flush()
    {then}
"""
#: Folders that nobody may enter, one in another a thousand times with names too long for one path, and ways out.
LOCKED = """
def descend(name, times):
    here = os.open(folder / "deep", os.O_RDONLY)
    for level in range(times):
        os.mkdir(name, dir_fd=here)
        os.symlink({outside!r}, "out", dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.fchmod(here, 0)
        os.close(here)
        here = inner


(folder / "deep").mkdir()
descend("x" * 200, {levels})
for place in ("locked", "locked/inner"):
    (folder / place).mkdir()
    (folder / place / "file").touch()
    (folder / place / "out").symlink_to({outside!r})
(folder / "locked/inner").chmod(0)
(folder / "locked").chmod(0)
"""


def solution(does: str, **holes: Any) -> str:
    """The solution's text with what it does at its import."""
    return SOLUTION.replace("{does}", does.format(**holes))


@pytest.mark.parametrize(
    ("does", "count", "words"),
    [(LARGE_FILES, 3, "more than 4.0 GiB"), (MANY_FILES, 100_001, "more than 100000 files")],
    ids=["bytes", "files"],
)
def test_a_folder_that_grows_without_end_ends_the_candidate(
    does: str, count: int, words: str, tmp_path: Path, judged: Callable[..., Any]
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (row,) = judged(tmp_path, solution(does + WAITS, count=count), TMPDIR=str(place)).rows
    assert row["status"] == "RUNTIME_ERROR", row["message"]
    assert words in row["message"]
    assert list(place.glob("harness-worker-*")) == []
    (row,) = judged(tmp_path, solution(does, count=1), TMPDIR=str(place)).rows
    assert row["status"] == "PASSED", row["message"]
    assert list(place.glob("harness-worker-*")) == []


def test_nothing_that_is_locked_away_stays_and_nothing_outside_changes(
    tmp_path: Path, judged: Callable[..., Any]
) -> None:
    place, outside = tmp_path / "place", tmp_path / "outside"
    for folder in (place, outside):
        folder.mkdir()
    (outside / "kept").write_text("kept")
    outside.chmod(0o510)
    does = LOCKED.replace("{outside!r}", repr(str(outside))).replace("{levels}", "1000")
    ran = judged(tmp_path, SOLUTION.replace("{does}", does), TMPDIR=str(place))
    assert (ran.code, "Traceback" in ran.err) in ((0, False), (1, False)), ran.err  # too deep, where that is seen
    assert list(place.glob("harness-worker-*")) == []
    assert outside.stat().st_mode & 0o777 == 0o510
    assert (outside / "kept").read_text() == "kept"


MOUNT = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]


def can_mount() -> bool:
    """Whether this user may mount a file system of its own."""
    if sys.platform != "linux":
        return False
    try:
        return subprocess.run([*MOUNT, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture
def on_a_small_disk(tmp_path: Path, home: Path, written: Callable[..., list[str | Path]]) -> Callable[..., Any]:
    """Evaluates a solution whose temporary folder is on a small disk, partly taken; the record, and what stays."""

    def run(text: str, taken_mebibytes: float) -> tuple[dict[str, Any], list[str]]:
        arguments = [*map(str, written(tmp_path, text)), "--fresh"]
        script = (
            f"mount -t tmpfs -o size=160m,mode=1777 tmpfs {shlex.quote(str(tmp_path))}/disk && "
            f"cd {shlex.quote(str(tmp_path))}/disk && head -c {taken_mebibytes * 1024:.0f}K /dev/zero > taken && "
            f"TMPDIR=$PWD {shlex.join([sys.executable, '-m', 'harness', *arguments])}; ls"
        )
        (tmp_path / "disk").mkdir(exist_ok=True)
        environment = {**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)}
        ran = subprocess.run([*MOUNT, "sh", "-c", script], env=environment, capture_output=True, text=True)
        record, *left = ran.stdout.splitlines()
        return json.loads(record), left

    return run


@pytest.mark.skipif(not can_mount(), reason="needs a small disk: this user cannot mount one")
def test_a_disk_that_gets_full_ends_the_candidate_even_where_the_file_has_no_name(
    on_a_small_disk: Callable[..., Any],
) -> None:
    row, left = on_a_small_disk(solution(NO_NAME, mebibytes=110, then="signal.pause()"), 0)
    assert row["status"] == "RUNTIME_ERROR", row["message"]
    assert "is full" in row["message"]
    assert not any(name.startswith("harness-worker-") for name in left)
    row, left = on_a_small_disk(solution(NO_NAME, mebibytes=10, then="pass"), 0)
    assert row["status"] == "PASSED", row["message"]
    assert not any(name.startswith("harness-worker-") for name in left)


@pytest.mark.skipif(not can_mount(), reason="needs a small disk: this user cannot mount one")
@pytest.mark.parametrize("taken_mebibytes", [110, 159.6])  # the latter has no room for the emulator's libraries
def test_a_disk_that_was_full_before_is_no_fault_of_the_candidate(
    on_a_small_disk: Callable[..., Any], taken_mebibytes: float
) -> None:
    row, left = on_a_small_disk(solution(""), taken_mebibytes)
    assert row["status"] == "HARNESS_ERROR"
    assert row["message"].startswith("the disk of ")
    assert "free some space, or set TMPDIR" in row["message"]
    assert not any(name.startswith("harness-worker-") for name in left)
