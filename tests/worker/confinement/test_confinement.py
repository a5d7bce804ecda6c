"""Tests a worker from inside: what a candidate can reach, and what an honest one may still do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

#: A candidate that makes attempts where it can reach the most, at import, and prints what came of each.
WALKER = '''
import ctypes, errno, fcntl, json, os, pathlib, resource, shutil, signal, socket, subprocess, sys, tempfile, threading
import torch
import torch.nn as nn
import harness

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
        print(json.dumps([name, "did", str(action())[:80]]), flush=True)
    except OSError as error:
        print(json.dumps([name, "refused", str(error)[:80]]), flush=True)


def processes_without_end():
    """Start processes that wait until no more can be started, or more than the limit; end them."""
    ran = subprocess.run([sys.executable, "-S", "-E", "-c", FORKS], capture_output=True, text=True, check=True)
    if "refused" in ran.stdout:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return ran.stdout


def timers_without_end():
    """Set up timers until no more are to be had, or more than the limit; delete them."""
    numbers = []
    try:
        for _ in range(2000):
            number = ctypes.c_int()
            if libc.timer_create(1, None, ctypes.byref(number)):
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            numbers.append(number)
    finally:
        for number in numbers:
            libc.timer_delete(number)
    return len(numbers)


FORKS = """
import os, resource, signal
children = []
try:
    for _ in range(min(resource.getrlimit(resource.RLIMIT_NPROC)[0], 20000) + 8):
        children.append(os.fork() or signal.pause())
except BlockingIOError:
    print("refused")
finally:
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""


def unchanged(path, change):
    """Change a file; an error where the file is as before though the call may have said otherwise."""
    before = os.stat(path)
    change(path)
    after = os.stat(path)
    if [before.st_mode, before.st_mtime_ns, before.st_uid] == [after.st_mode, after.st_mtime_ns, after.st_uid]:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def by_descriptor(change):
    """The same change by a descriptor that only reads."""
    def act(path):
        with open(path) as file:
            change(file.fileno())
    return act


def control(*arguments):
    """A command on a descriptor of a file that the user owns and that the candidate may read."""
    with open(SOMEBODY_S) as file:
        return fcntl.fcntl(file, *arguments)


def order(command):
    """A command of a file system on such a descriptor."""
    with open(SOMEBODY_S) as file:
        return fcntl.ioctl(file, command, bytearray(64))


#: A file of the harness, which is the user's own where the user installed it, and can be read.
SOMEBODY_S = harness.__file__


def threads(count):
    """Run threads that all are there at the same time."""
    meeting = threading.Barrier(count)
    started = [threading.Thread(target=meeting.wait) for _ in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return count


{attempts}


class ModelNew(nn.Module):
    def forward(self, x):
        return x * 2
'''
X86 = os.uname().machine == "x86_64"
PTRACE, READ_MEMORY, NAMESPACES, LIMITS, QUEUE = (101, 310, 272, 302, 129) if X86 else (117, 270, 97, 261, 138)
CLONE, SHARED_MEMORY, QUEUE_OF_MESSAGES = (56, 29, 68) if X86 else (220, 194, 186)
WATCH_FILES, DISK_REQUESTS, FILE_ATTRIBUTES = (294, 206, 469) if X86 else (26, 0, 469)
IO_PRIORITY, SCHEDULING, MOVE_PAGES = (251, 314, 279) if X86 else (30, 274, 239)
PAGES_TO_A_PIPE = 278 if X86 else 75
CONTROL, CONTROL_PROCESS = (16, 157) if X86 else (29, 167)
SEND_SIGNAL, ADVISE, NEW_CLONE, NEW_MOUNT = 424, 440, 435, 430
NEW_USER = 0x10000000
#: Root's processes are not counted by the kernel: there the bound holds where the candidate is another user.
PROCESSES = "user" if os.geteuid() == 0 else "limits"


class Attempt(NamedTuple):
    """What the candidate tries, by which layer it must be refused, or empty for what it must still be able to do."""

    name: str
    code: str
    layer: str
    words: str = ""  # the reason that must be given, where it is not the layer's usual one


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
    Attempt("a Unix socket", "socket.socket(socket.AF_UNIX)", "system_calls"),
    Attempt("a connection", "socket.socketpair()[0].connect('/run/dbus/system_bus_socket')", "system_calls"),
    Attempt("a name for a socket", "socket.socketpair()[0].bind('name')", "system_calls"),
    Attempt("an ear", "socket.socketpair()[0].listen()", "system_calls"),
    Attempt("an accepted connection", "socket.socketpair()[0].accept()", "system_calls"),
    Attempt("a pair that sends to others", "socket.socketpair(type=socket.SOCK_DGRAM)", "system_calls"),
    Attempt("tracing the judge", f"call({PTRACE}, 16, judge, 0, 0)", "system_calls"),
    Attempt("reading the judge by a call", f"call({READ_MEMORY}, judge, 0, 0, 0, 0, 0)", "system_calls"),
    Attempt("namespaces of its own", f"call({NAMESPACES}, {NEW_USER})", "system_calls"),
    Attempt("a namespace for a child", f"call({CLONE}, {NEW_USER} | 17, 0, 0, 0, 0) or os._exit(0)", "system_calls"),
    Attempt("a child of the judge", f"call({CLONE}, 0x8000 | 17, 0, 0, 0, 0) or os._exit(0)", "system_calls"),
    Attempt("the newer clone", f"call({NEW_CLONE}, 0, 0)", "system_calls", "Function not implemented"),
    Attempt("a new file system", f"call({NEW_MOUNT}, 0, 0)", "system_calls"),
    Attempt("shared memory that stays", f"call({SHARED_MEMORY}, 0, 4096, 0o1600)", "system_calls"),
    Attempt("messages that stay", f"call({QUEUE_OF_MESSAGES}, 0, 0o1600)", "system_calls"),
    Attempt("the judge's processors", "os.sched_setaffinity(judge, [0])", "system_calls"),
    Attempt("another's processors", "os.sched_setaffinity(1, [0])", "system_calls"),
    Attempt("the judge's priority", "os.setpriority(os.PRIO_PROCESS, judge, 19)", "system_calls"),
    Attempt("the user's priority", "os.setpriority(os.PRIO_USER, 0, 19)", "system_calls"),
    Attempt("the group's priority", "os.setpriority(os.PRIO_PGRP, os.getpgid(judge), 19)", "system_calls"),
    Attempt("the judge's class", "os.sched_setscheduler(judge, os.SCHED_IDLE, os.sched_param(0))", "system_calls"),
    Attempt("the judge's parameters", "os.sched_setparam(judge, os.sched_param(0))", "system_calls"),
    Attempt("the judge's attributes", f"call({SCHEDULING}, judge, 0, 0)", "system_calls"),
    Attempt("the judge's turn at the disk", f"call({IO_PRIORITY}, 1, judge, 0)", "system_calls"),
    Attempt("the user's turn at the disk", f"call({IO_PRIORITY}, 3, 0, 0)", "system_calls"),
    Attempt("the judge's pages", f"call({MOVE_PAGES}, judge, 0, 0, 0, 0, 0)", "system_calls"),
    Attempt("advice about others' memory", f"call({ADVISE}, -1, 0, 0, 0, 0)", "system_calls"),
    Attempt("a signal to the judge", "os.kill(judge, 0)", "system_calls"),
    Attempt("a signal to its group", "os.kill(-os.getpgid(judge), 0)", "system_calls"),
    Attempt("a signal to all", "os.kill(-1, 0)", "system_calls"),
    Attempt("a queued signal to the judge", f"call({QUEUE}, judge, 0, 0)", "system_calls"),
    Attempt("the judge's limits", f"call({LIMITS}, judge, 0, 0, 0)", "system_calls"),
    Attempt("a signal by input", "__import__('fcntl').fcntl(1, 8, judge)", "system_calls"),
    Attempt("a signal by input of a socket", f"call({CONTROL}, 1, 0x8901, 0)", "system_calls"),
    Attempt("a signal by a descriptor", f"call({SEND_SIGNAL}, -1, 0, 0, 0)", "system_calls"),
    Attempt("an attribute of a file", "os.setxattr(SOMEBODY_S, 'user.note', b'1')", "system_calls"),
    Attempt(
        "an attribute of a link", "os.setxattr(SOMEBODY_S, 'user.note', b'1', follow_symlinks=False)", "system_calls"
    ),
    Attempt("an attribute by a descriptor", "os.setxattr(0, 'user.note', b'1')", "system_calls"),
    Attempt("a file's attribute gone", "os.removexattr(SOMEBODY_S, 'user.note')", "system_calls"),
    Attempt("a file's attributes by the newer call", f"call({FILE_ATTRIBUTES}, -1, 0, 0, 0, 0)", "system_calls"),
    Attempt("a file's flags", "order(0x40086602)", "system_calls"),
    Attempt("a file's project", "order(0x401C5820)", "system_calls"),
    Attempt("a file's version", "order(0x40087602)", "system_calls"),
    Attempt("a file's times", "unchanged(SOMEBODY_S, lambda path: os.utime(path, (1, 1)))", "system_calls"),
    Attempt("now as a file's time", "unchanged(SOMEBODY_S, os.utime)", "system_calls"),
    Attempt("times by a descriptor", "unchanged(SOMEBODY_S, by_descriptor(os.utime))", "system_calls"),
    Attempt("a file's mode", "unchanged(SOMEBODY_S, lambda path: os.chmod(path, 0o604))", "system_calls"),
    Attempt(
        "a mode by a descriptor",
        "unchanged(SOMEBODY_S, by_descriptor(lambda to: os.fchmod(to, 0o604)))",
        "system_calls",
    ),
    Attempt("a file's owner", "unchanged(SOMEBODY_S, lambda path: os.chown(path, 1, 1))", "system_calls"),
    Attempt("a lease on a file", "control(fcntl.F_SETLEASE, fcntl.F_RDLCK)", "system_calls"),
    Attempt("a delegation of a file", "control(1040, b'')", "system_calls"),
    Attempt("a hint on a file", "control(1036, bytes(8))", "system_calls"),
    Attempt("news of a folder", "control(fcntl.F_NOTIFY, 1)", "system_calls"),
    Attempt("news of files", f"call({WATCH_FILES}, 0)", "system_calls"),
    Attempt("a larger pipe", "fcntl.fcntl(1, 1031, 1 << 20)", "system_calls"),
    Attempt("requests to the disk", f"call({DISK_REQUESTS}, 1, 0)", "system_calls"),
    Attempt("a file in memory", "os.memfd_create('bytes')", "system_calls"),
    Attempt("memory in a pipe", f"call({PAGES_TO_A_PIPE}, -1, 0, 0, 0)", "system_calls"),
    Attempt("memory that is hidden", "call(447, 0)", "system_calls"),
    Attempt("descriptors on their way", "socket.send_fds(socket.socketpair()[0], [b'x'], [0])", "system_calls"),
    Attempt("children that hide", f"call({CONTROL_PROCESS}, 36, 0, 0, 0, 0)", "system_calls"),
    Attempt("timers without end", "timers_without_end()", "limits", "Resource temporarily unavailable"),
    Attempt("to be spared when memory runs out", "open('/proc/self/oom_score_adj', 'w')", "files"),
    Attempt("a file without end", "os.truncate(tempfile.mkstemp()[1], 3 << 30)", "limits"),
    Attempt("files without end", "[open(os.devnull) for _ in range(5000)]", "limits"),
    Attempt("processes without end", "processes_without_end()", PROCESSES, "Resource temporarily unavailable"),
    Attempt("its own limits", "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))", ""),
    Attempt("its own maps", "len(open('/proc/self/maps').read())", ""),
    Attempt("its own file", "len(open(__file__).read())", ""),
    Attempt("a temporary file", "tempfile.NamedTemporaryFile().write(b'x')", ""),
    Attempt("a file in its home", "(pathlib.Path.home() / 'note').write_text('x')", ""),
    Attempt("a program", "subprocess.run([sys.executable, '-c', 'print(1)'], check=True).returncode", ""),
    Attempt("a copy with times and mode", "shutil.copy2(SOMEBODY_S, 'copied')", ""),
    Attempt("a touched file", "pathlib.Path('copied').touch()", ""),
    Attempt("a new file by a touch", "(pathlib.Path('fresh').touch(), pathlib.Path('fresh').stat())", ""),
    Attempt("a lock", "fcntl.flock(os.open('copied', os.O_RDONLY), fcntl.LOCK_EX)", ""),
    Attempt("a pair of sockets", "socket.socketpair()", ""),
    Attempt("a signal to itself", "os.kill(os.getpid(), 0)", ""),
    Attempt("a thread", "threading.Thread(target=print).start()", ""),
    Attempt("many threads", "threads(64)", ""),
    Attempt("its own processors", "os.sched_setaffinity(0, os.sched_getaffinity(os.getpid()))", ""),
    Attempt("its own priority", "os.nice(1)", ""),
    Attempt("its own clone", "os.waitpid(os.fork() or os._exit(0), 0)", ""),
    Attempt("the number of processors", "len(open('/proc/cpuinfo').read())", ""),
    Attempt("randomness", "open('/dev/urandom', 'rb').read(1)", ""),
    Attempt("nothing", "open('/dev/null', 'w').write('x')", ""),
]


WORDS = {"files": "Permission denied", "system_calls": "Operation not permitted"}


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory, home: Path, judged: Callable[..., Any]) -> dict[str, Any]:
    """The record of the walker, and the outcome of each attempt under ``came``; in ``came.json`` too, for a reader."""
    folder = tmp_path_factory.mktemp("walk")
    places = {"{home}": str(Path.home()), "{harness_home}": str(home), "{folder}": str(folder)}
    lines = []
    for one in ATTEMPTS:
        code = one.code
        for hole, place in places.items():
            code = code.replace(hole, place)
        lines.append(f"attempt({one.name!r}, lambda: {code})")
    (home / "builds").mkdir(exist_ok=True)
    (row,) = judged(folder, WALKER.replace("{attempts}", "\n".join(lines))).rows
    said = [json.loads(line) for line in row["log"].splitlines() if line.startswith("[")]
    came = {name: (outcome, what) for name, outcome, what in said}
    (folder / "came.json").write_text(json.dumps({"layers": row["confinement"], "came": came}, indent=1))
    return {**row, "came": came}


@pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")
@pytest.mark.parametrize("one", [pytest.param(one, id=one.name) for one in ATTEMPTS])
def test_an_attempt(one: Attempt, walked: dict[str, Any], missing: str) -> None:
    outcome, what = walked["came"][one.name]
    if one.layer and f"{one.layer}: " in missing:
        assert walked["confinement"][one.layer], "a layer that is missing must be said to be"
        return
    assert outcome == ("refused" if one.layer else "did"), what
    assert (one.words or WORDS.get(one.layer, "")) in what  # refused by the layer, and not for another reason


def test_the_record_says_how_the_candidate_was_confined(walked: dict[str, Any]) -> None:
    assert walked["status"] == "PASSED", walked["message"]
    layers = ["no_new_privs", "limits", "files", "system_calls", "judge_memory"]
    if os.geteuid() == 0:
        layers[1:1] = ["user", "capabilities"]
    assert list(walked["confinement"]) == layers
    assert walked["confinement"]["no_new_privs"] == walked["confinement"]["judge_memory"] == ""


def test_what_is_not_confined_in_full_is_refused_where_that_is_wanted(
    tmp_path: Path, harness: Callable[..., Any], judged: Callable[..., Any], missing: str
) -> None:
    ran = judged(tmp_path, WALKER.replace("{attempts}", ""), "--require-confinement")
    (row,) = ran.rows
    if missing:
        assert (row["status"], ran.code) == ("HARNESS_ERROR", 3)
        assert "did not run the candidate" in row["message"]
        options = ("--problem", tmp_path / "problem.py", "--device", "cpu", "--require-confinement")
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


def test_a_compiler_reads_no_secret_into_a_record(tmp_path: Path, judged: Callable[..., Any], missing: str) -> None:
    """The same text as an error of the compiler: beside the solution it is a secret, in it the user's own source."""
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    (row,) = judged(tmp_path, INCLUDING.replace("{path}", str(secret))).rows
    assert row["status"] == "BUILD_ERROR"
    assert ("files: " in missing) or SECRET not in json.dumps(row) + Path(row["build_log"]).read_text()
    (row,) = judged(tmp_path, INCLUDING.replace('#include "{path}"', SECRET)).rows
    assert row["status"] == "BUILD_ERROR"
    assert SECRET in row["message"]


#: How a process begins that has the filter of system calls alone.
FILTERED = """
import os, pathlib, socket, sys
from harness.worker.confinement.rights import no_new_privileges
from harness.worker.confinement.seccomp import filter_calls

def attempt(action):
    try:
        action()
    except PermissionError:
        return "refused"
    return "did"

no_new_privileges()
"""
#: With a GPU its driver opens a Unix socket and listens; nothing else is let through than without one.
ON_GPU = """
unix = lambda kind=socket.SOCK_STREAM: socket.socket(socket.AF_UNIX, kind)
before = unix()
filter_calls((os.getppid(),), on_gpu={on_gpu})
listener = before if not {on_gpu} else unix()
print(
    attempt(unix), attempt(lambda: listener.bind("\\0harness-%d" % os.getpid())), attempt(listener.listen),
    attempt(listener.accept), attempt(lambda: before.connect("\\0harness-%d" % os.getpid())),
    attempt(lambda: unix(socket.SOCK_DGRAM)), attempt(lambda: socket.socket(socket.AF_INET)),
)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")
@pytest.mark.parametrize(
    ("on_gpu", "expected"), [(False, ["refused"] * 7), (True, ["did", "did", "did", *["refused"] * 4])]
)
def test_sockets_of_the_driver_reach_nobody(on_gpu: bool, expected: list[str], missing: str) -> None:
    """socket, bind, listen; accept, connect, a datagram socket, a network one."""
    if "system_calls: " in missing:
        return
    code = FILTERED + ON_GPU.replace("{on_gpu}", str(on_gpu))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == expected


#: Landlock keeps files from being shortened since its third version; before, the filter does.
SHORTENED = """
path = pathlib.Path(sys.argv[1])
filter_calls((os.getppid(),), on_gpu=False, keeps_lengths={keeps_lengths})
print(
    attempt(lambda: os.truncate(path, 1)), attempt(lambda: os.open(path, os.O_RDONLY | os.O_TRUNC)),
    attempt(lambda: os.open(path, os.O_RDONLY | os.O_TRUNC | os.O_CLOEXEC)),
    attempt(path.read_text), attempt(lambda: path.write_text("more")),
)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")
@pytest.mark.parametrize(("keeps_lengths", "first"), [(False, "refused"), (True, "did")])
def test_files_are_not_shortened_where_landlock_is_old(
    keeps_lengths: bool, first: str, tmp_path: Path, missing: str
) -> None:
    """By name, opened for reading; what honest code does, to read and to write, is let through."""
    if "system_calls: " in missing:
        return
    path = tmp_path / "file"
    path.write_text("text")
    code = FILTERED + SHORTENED.replace("{keeps_lengths}", str(keeps_lengths))
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [first] * 3 + ["did"] * 2
