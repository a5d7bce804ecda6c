"""Tests the search for the processes that a worker has."""

from __future__ import annotations

import os
import signal
import subprocess

from harness.judge.process.leftovers import children_of, descendants

#: More than the kernel tells of in one page.
MANY = 900


def test_every_one_of_very_many_children_is_found() -> None:
    """A worker may have a thousand; one that is not found is not stopped and its memory not counted."""
    script = f"for i in $(seq {MANY}); do sleep 600 & done; echo ready; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            assert len(children_of(process.pid)) == MANY
            assert len(descendants(process.pid)) == MANY
        finally:
            os.killpg(process.pid, signal.SIGKILL)
