"""A worker seen from inside: what a candidate can reach, and what an honest one still can do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.doctor import check_confinement

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(5, 7)]


def get_init_inputs():
    return []
"""
#: A candidate that makes attempts where it can reach the most, at import, and prints what came of each.
WALKER = '''
import ctypes, json, os, pathlib, resource, signal, socket, subprocess, sys, tempfile, threading
import torch
import torch.nn as nn

judge = os.getppid()
libc = ctypes.CDLL(None, use_errno=True)


def call(*arguments):
    """A system call by number."""
    result = libc.syscall(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def attempt(name, action):
    try:
        print(json.dumps([name, "did", str(action())[:300]]), flush=True)
    except OSError as error:
        print(json.dumps([name, "refused", str(error)]), flush=True)


{attempts}


class ModelNew(nn.Module):
    def forward(self, x):
        return x * 2
'''
X86 = os.uname().machine == "x86_64"
PTRACE, READ_MEMORY, NAMESPACES, LIMITS, QUEUE = (101, 310, 272, 302, 129) if X86 else (117, 270, 97, 261, 138)
SEND_SIGNAL = 424


class Attempt(NamedTuple):
    """What the candidate tries, by which layer it must be refused, or empty for what it must still be able to do."""

    name: str
    code: str
    layer: str


ATTEMPTS = [
    Attempt("a secret of the system", "open('/etc/passwd').read()", "files"),
    Attempt("the judge's memory", "open(f'/proc/{judge}/mem', 'rb').read(1)", "files"),
    Attempt("the judge's maps", "open(f'/proc/{judge}/maps').read()", "files"),
    Attempt("the judge's arguments", "open(f'/proc/{judge}/cmdline').read()", "files"),
    Attempt("the judge's environment", "open(f'/proc/{judge}/environ').read()", "files"),
    Attempt("the judge's descriptors", "os.listdir(f'/proc/{judge}/fd')", "files"),
    Attempt("other processes", "os.listdir('/proc')", "files"),
    Attempt("the user's home", "os.listdir('{home}')", "files"),
    Attempt("the store", "open('{harness_home}/store.db', 'rb').read()", "files"),
    Attempt("the build cache", "os.listdir('{harness_home}/builds')", "files"),
    Attempt("the solution's folder", "os.listdir('{folder}')", "files"),
    Attempt("the temporary folder", "os.listdir('/tmp')", "files"),
    Attempt("a note for the next", "open('/tmp/left_for_the_next', 'w')", "files"),
    Attempt("shared memory with a name", "open('/dev/shm/left_for_the_next', 'w')", "files"),
    Attempt("a network socket", "socket.socket(socket.AF_INET)", "system_calls"),
    Attempt("a network socket of version 6", "socket.socket(socket.AF_INET6)", "system_calls"),
    Attempt("a netlink socket", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "system_calls"),
    Attempt("a raw socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "system_calls"),
    Attempt("tracing the judge", f"call({PTRACE}, 16, judge, 0, 0)", "system_calls"),
    Attempt("reading the judge by a call", f"call({READ_MEMORY}, judge, 0, 0, 0, 0, 0)", "system_calls"),
    Attempt("namespaces of its own", f"call({NAMESPACES}, 0x10000000)", "system_calls"),
    Attempt("a signal to the judge", "os.kill(judge, 0)", "system_calls"),
    Attempt("a signal to its group", "os.kill(-os.getpgid(judge), 0)", "system_calls"),
    Attempt("a signal to all", "os.kill(-1, 0)", "system_calls"),
    Attempt("a queued signal to the judge", f"call({QUEUE}, judge, 0, 0)", "system_calls"),
    Attempt("the judge's limits", f"call({LIMITS}, judge, 0, 0, 0)", "system_calls"),
    Attempt("a signal by a descriptor", f"call({SEND_SIGNAL}, -1, 0, 0, 0)", "system_calls"),
    Attempt("a file without end", "os.truncate(tempfile.mkstemp()[1], 3 << 30)", "limits"),
    Attempt("files without end", "[open(os.devnull) for _ in range(5000)]", "limits"),
    Attempt("its own limits", "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))", ""),
    Attempt("its own maps", "len(open('/proc/self/maps').read())", ""),
    Attempt("its own file", "len(open(__file__).read())", ""),
    Attempt("a temporary file", "tempfile.NamedTemporaryFile().write(b'x')", ""),
    Attempt("a file in its home", "(pathlib.Path.home() / 'note').write_text('x')", ""),
    Attempt("a program", "subprocess.run([sys.executable, '-c', 'print(1)'], check=True).returncode", ""),
    Attempt("a pair of sockets", "socket.socketpair()", ""),
    Attempt("a signal to itself", "os.kill(os.getpid(), 0)", ""),
    Attempt("a thread", "threading.Thread(target=print).start()", ""),
    Attempt("the number of processors", "len(open('/proc/cpuinfo').read())", ""),
    Attempt("randomness", "open('/dev/urandom', 'rb').read(1)", ""),
    Attempt("nothing", "open('/dev/null', 'w').write('x')", ""),
]


WORDS = {"files": "Permission denied", "system_calls": "Operation not permitted"}


@pytest.fixture(scope="module")
def missing() -> str:
    """What this machine does not confine by, as ``doctor`` has it; empty on one that has everything."""
    check = check_confinement()
    return "" if check.ok else check.found


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory, home: Path, harness: Callable[..., Any]) -> dict[str, Any]:
    """The record of the walker, and the outcome of each attempt under ``came``."""
    folder = tmp_path_factory.mktemp("walk")
    places = {"{home}": str(Path.home()), "{harness_home}": str(home), "{folder}": str(folder)}
    lines = []
    for one in ATTEMPTS:
        code = one.code
        for hole, place in places.items():
            code = code.replace(hole, place)
        lines.append(f"attempt({one.name!r}, lambda: {code})")
    (home / "builds").mkdir(exist_ok=True)
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "walker.py").write_text(WALKER.replace("{attempts}", "\n".join(lines)))
    ran = harness(
        "evaluate",
        folder / "walker.py",
        "--problem",
        folder / "problem.py",
        "--device",
        "cpu",
        "--json",
        "--seed",
        "abc",
    )
    (row,) = ran.rows
    said = [json.loads(line) for line in row["log"].splitlines() if line.startswith("[")]
    return {**row, "came": {name: (outcome, what) for name, outcome, what in said}}


@pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")
@pytest.mark.parametrize("one", [pytest.param(one, id=one.name) for one in ATTEMPTS])
def test_an_attempt(one: Attempt, walked: dict[str, Any], missing: str) -> None:
    outcome, what = walked["came"][one.name]
    if one.layer and f"{one.layer}: " in missing:
        assert walked["confinement"][one.layer], "a layer that is missing must be said to be"
        return
    assert outcome == ("refused" if one.layer else "did"), what
    assert WORDS.get(one.layer, "") in what  # refused by the layer, and not for another reason


def test_the_record_says_how_the_candidate_was_confined(walked: dict[str, Any]) -> None:
    assert walked["status"] == "PASSED", walked["message"]
    layers = ["no_new_privs", "limits", "files", "system_calls", "judge_memory"]
    if os.geteuid() == 0:
        layers[2:2] = ["user", "capabilities"]
    assert list(walked["confinement"]) == layers
    assert walked["confinement"]["no_new_privs"] == walked["confinement"]["judge_memory"] == ""


def test_what_is_not_confined_in_full_is_refused_where_that_is_wanted(
    tmp_path: Path, harness: Callable[..., Any], missing: str
) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "answer.py").write_text(WALKER.replace("{attempts}", ""))
    options = ("--problem", tmp_path / "problem.py", "--device", "cpu", "--require-confinement")
    ran = harness("evaluate", tmp_path / "answer.py", *options, "--json")
    (row,) = ran.rows
    if missing:
        assert (row["status"], ran.code) == ("HARNESS_ERROR", 3)
        assert "the candidate was not run" in row["message"]
        assert "not confined by" in harness("evaluate", tmp_path / "answer.py", *options).out
    else:
        assert (row["status"], ran.code) == ("PASSED", 0)


SECRET = "hunter2hunter2"
INCLUDING = """
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

load_inline("reading", "", '#include "{path}"\\n', functions=[])


class ModelNew(nn.Module):
    def forward(self, x):
        return x * 2
"""


def test_a_compiler_reads_no_secret_into_a_record(tmp_path: Path, harness: Callable[..., Any], missing: str) -> None:
    """The same text as an error of the compiler: beside the solution it is a secret, in it the user's own source."""
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    (tmp_path / "problem.py").write_text(PROBLEM)
    options = ("--problem", tmp_path / "problem.py", "--device", "cpu", "--json")
    (tmp_path / "including.py").write_text(INCLUDING.replace("{path}", str(secret)))
    (row,) = harness("evaluate", tmp_path / "including.py", *options).rows
    assert row["status"] == "BUILD_ERROR"
    assert ("files: " in missing) or SECRET not in json.dumps(row) + Path(row["build_log"]).read_text()
    (tmp_path / "honest.py").write_text(INCLUDING.replace('#include "{path}"', SECRET))
    (row,) = harness("evaluate", tmp_path / "honest.py", *options).rows
    assert row["status"] == "BUILD_ERROR"
    assert SECRET in row["message"]
