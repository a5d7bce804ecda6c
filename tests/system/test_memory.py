"""Tests how much memory is free: the machine's, or a container's limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.system.memory import available_memory

GIB = 1 << 30


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.mark.parametrize(
    ("membership", "folder", "files", "expected"),
    [
        pytest.param("", "", {}, 64 * GIB, id="no groups"),
        pytest.param(
            "0::/box/job",
            "box",
            {"memory__max": str(8 * GIB), "memory__current": str(5 * GIB)},
            3 * GIB,
            id="version 2",
        ),
        pytest.param(
            "0::/not/mounted/here",
            "",
            {
                "memory__max": str(8 * GIB),
                "memory__current": str(6 * GIB),
                "memory__stat": f"anon {GIB}\nfile {GIB}\ninactive_file {GIB}\n",
            },
            3 * GIB,
            id="pages of files",
        ),
        pytest.param("0::/box", "box", {"memory__max": "max", "memory__current": "1"}, 64 * GIB, id="no bound"),
        pytest.param(
            "5:cpu,memory:/box\n0::/",
            "memory/box",
            {
                "memory__limit_in_bytes": str(4 * GIB),
                "memory__usage_in_bytes": str(GIB),
                "memory__stat": f"inactive_file 7\ntotal_inactive_file {GIB // 2}\n",
            },
            7 * GIB // 2,
            id="version 1",
        ),
        pytest.param(
            "0::/box", "box", {"memory__max": str(GIB), "memory__current": str(2 * GIB)}, 0, id="more than the bound"
        ),
        pytest.param(
            "0::/box", "box", {"memory__max": str(128 * GIB), "memory__current": "0"}, 64 * GIB, id="beyond the machine"
        ),
    ],
)
def test_free_memory_is_what_the_machine_and_every_group_leave(
    membership: str, folder: str, files: dict[str, str], expected: int, tmp_path: Path
) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    write(proc, meminfo=f"MemTotal: {99 * GIB // 1024} kB\nMemAvailable: {64 * GIB // 1024} kB\n")
    write(proc / "self", cgroup=membership)
    write(groups / folder, **files)
    assert available_memory(proc, groups) == expected


def test_this_machine_has_some() -> None:
    assert available_memory() > 0
