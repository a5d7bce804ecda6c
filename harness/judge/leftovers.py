"""What a candidate leaves behind: processes, wherever they went, and folders that it locked away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def descendants(process: int) -> list[int]:
    """The living children of a process (Linux), and theirs; a worker adopts those whose parents have ended."""
    children: dict[int, list[int]] = {}
    ended = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text(errors="replace").rpartition(")")[2].split()[:2]
        except (OSError, ValueError):  # it has ended
            continue
        children.setdefault(int(parent), []).append(int(entry.parent.name))
        if state in "ZX":
            ended.add(int(entry.parent.name))
    found, waiting = [], [process]
    while waiting:
        born = children.get(waiting.pop(), [])
        found += born
        waiting += born
    return [one for one in found if one not in ended]


def processes_of(folder: Path) -> Iterator[int]:
    """Processes (Linux) whose temporary folder is this one by their environment, or that work in it.

    Those of a worker that has ended before its children: they are nobody's descendants any more.
    """
    mark = os.fsencode(f"TMPDIR={folder}")
    owner = folder.stat().st_uid if folder.exists() else os.geteuid()
    for entry in Path("/proc").glob("[0-9]*"):
        if owner != os.geteuid() and _user_of(entry) == owner:
            yield int(entry.name)
            continue
        try:
            marked = mark in (entry / "environ").read_bytes().split(b"\0")
            inside = marked or (entry / "cwd").readlink().is_relative_to(folder)
        except OSError:  # it has ended, or is somebody else's
            continue
        if inside and int(entry.name) != os.getpid():
            yield int(entry.name)


def _user_of(process: Path) -> int | None:
    """The user that a process (a folder of /proc) runs as; None where it has ended."""
    try:
        lines = (process / "status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, also what a candidate has locked away."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    folder.chmod(0o700)
    for place, names, _ in os.walk(folder):
        for inner in (Path(place) / name for name in names):
            if not inner.is_symlink():  # what a link leads to is not ours
                inner.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
