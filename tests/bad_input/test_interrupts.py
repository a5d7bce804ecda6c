"""Tests interrupts at every stage of ``evaluate``: exit code, stored results and no leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.bad_input.conftest import LIMIT_S, PROBLEM, Place, solution

MARK = "open('reached', 'a').close()\n{indent}while True: pass"
BUILD = """from torch.utils.cpp_extension import load_inline
load_inline(name="stuck", cpp_sources="int stuck();", cuda_sources='''
#include "{pipe}"
int stuck() { return 7; }
'''.replace("{pipe}", os.path.abspath("pipe.h")), functions=["stuck"])"""


def endless(indent: int) -> str:
    """Statements that leave a mark in the root and never end."""
    return MARK.format(indent=" " * indent)


def in_the_body(place: Place) -> None:
    text = PROBLEM.replace('CASES = {"full": {}, "odd": {"n": 5}}', "CASES = dict(odd={})\n" + endless(0))
    place.write("problems/tiny.py", text.replace("import torch\n", "", 1).replace("import torch.nn as nn\n", ""))
    place.write("solutions/tiny/b.py", solution())


def in_get_inputs(place: Place) -> None:
    place.write("problems/tiny.py", PROBLEM.replace("return [torch", endless(4) + "\n    return [torch"))
    place.write("solutions/tiny/b.py", solution())


def in_a_build(place: Place) -> None:
    place.write("solutions/tiny/b.py", solution(init=f"os.mkfifo('pipe.h')\n{BUILD}"))


def in_forward(place: Place) -> None:
    place.write("solutions/tiny/b.py", solution(f"{endless(0)}\n"))


def is_reached(place: Place) -> bool:
    """Whether the stage is reached: the mark is there, or a compiler wants to read the pipe.

    The judge leaves its mark in the root, a worker in its own folder: it can write nowhere else.
    """
    for pipe in place.tmp.glob("harness-worker-*/pipe.h"):
        try:
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True
    return (place.root / "reached").exists() or any(place.tmp.glob("harness-worker-*/reached"))


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is so, the process (if it is of one that lives) has ended, or patience has.

    Asked once where it is so: a compiler that reads a pipe goes on when somebody has opened it.
    """
    end = time.monotonic() + LIMIT_S
    while not (holds := condition()) and time.monotonic() < end and (process is None or process.poll() is None):
        time.sleep(0.005)
    assert holds


@pytest.mark.parametrize(
    ("stage", "numbers", "code"),
    [
        (in_the_body, [signal.SIGINT], 130),
        (in_the_body, [signal.SIGHUP], 129),
        (in_get_inputs, [signal.SIGINT], 130),
        (in_a_build, [signal.SIGINT], 130),
        (in_forward, [signal.SIGINT, signal.SIGINT, signal.SIGINT], 130),
        (in_forward, [signal.SIGTERM], 143),
    ],
)
def test_an_interrupt_ends_everything(
    new_place: Place, stage: Callable[[Place], None], numbers: list[signal.Signals], code: int
) -> None:
    stage(new_place)
    process = new_place.begin("evaluate", "tiny", "--case", "odd", "--device", "cpu", "--json")
    wait_for(lambda: is_reached(new_place), process)
    for number in numbers:
        process.send_signal(number)
    out, err = Place.finish(process)
    assert (process.returncode, out) == (code, ""), err
    assert err.strip().splitlines()[-1] == f"interrupted by {numbers[0].name}"
    assert "Traceback" not in err
    assert new_place.left_behind() == []


def test_an_interrupt_of_all_that_a_terminal_reaches_is_quiet(new_place: Place) -> None:
    """A terminal sends it to the whole group, also while processes of ours import torch."""
    in_forward(new_place)
    process = new_place.begin("evaluate", "tiny", "--case", "odd", "--device", "cpu", start_new_session=True)
    wait_for(lambda: len(new_place.processes()) > 1, process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = Place.finish(process)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert new_place.left_behind() == []


def test_what_is_finished_is_kept_and_the_same_command_goes_on(new_place: Place) -> None:
    new_place.write("solutions/tiny/a.py", solution())
    in_forward(new_place)
    arguments = ["evaluate", "--case", "full", "--case", "odd", "--device", "cpu"]
    process = new_place.begin(*arguments)
    wait_for(lambda: is_reached(new_place), process)
    process.send_signal(signal.SIGINT)
    out, err = Place.finish(process)
    assert process.returncode == 130, err
    assert out.count("PASSED") == 1  # the table of what is finished
    assert "2/2" in out
    assert new_place.left_behind() == []

    new_place.write("solutions/tiny/b.py", solution() + "# it does not wait any more\n")
    again = new_place(*arguments, "--json")
    assert again.code == 0, again.err
    found = [(row["solution"], row["case"], row["stored"]) for row in again.rows]
    assert found == [
        ("tiny/a", "full", True),
        ("tiny/a", "odd", True),
        ("tiny/b", "full", False),
        ("tiny/b", "odd", False),
    ]


def test_a_machine_that_stood_still_costs_no_candidate_its_time(new_place: Place) -> None:
    """A suspended machine or a frozen container stops all processes, for longer than the limit."""
    once = "if not os.path.exists('reached'):\n    open('reached', 'a').close()\n    time.sleep(0.5)"
    new_place.write("solutions/tiny/a.py", solution(once))
    process = new_place.begin("evaluate", "tiny/a", "--case", "odd", "--device", "cpu", "--json", "--timeout", "6")
    wait_for(lambda: is_reached(new_place), process)
    stopped = new_place.processes()
    for number in stopped:
        os.kill(number, signal.SIGSTOP)
    time.sleep(8)
    for number in reversed(stopped):
        os.kill(number, signal.SIGCONT)
    out, err = Place.finish(process)
    assert process.returncode == 0, err
    assert '"status": "PASSED"' in out


def test_a_reader_that_has_enough_ends_the_program_quietly(new_place: Place) -> None:
    waits = "open('reached', 'a').close()\nwhile not os.path.exists('closed'): time.sleep(0.01)"
    for name, forward in (("a", "pass"), ("b", waits), ("c", "pass")):
        new_place.write(f"solutions/tiny/{name}.py", solution(forward) + f"# {name}\n")
    with new_place.begin("evaluate", "--case", "odd", "--device", "cpu", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        wait_for(lambda: is_reached(new_place), process)
        process.stdout.close()  # before there is a second line
        for mark in new_place.tmp.glob("harness-worker-*/reached"):
            mark.with_name("closed").touch()
        assert process.stderr.read() == ""
    assert process.returncode == 130
    assert new_place.left_behind() == []


def test_a_killed_harness_takes_its_workers_along(new_place: Place) -> None:
    in_forward(new_place)
    process = new_place.begin("evaluate", "tiny", "--case", "odd", "--device", "cpu", "--json")
    wait_for(lambda: is_reached(new_place), process)
    assert len(new_place.processes()) >= 2
    process.kill()
    Place.finish(process)
    wait_for(lambda: new_place.processes() == [])  # the kernel ends them when their parent has gone, not before
