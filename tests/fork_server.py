"""Runs a process that has imported torch and forks command lines, because the import dominates short ones.

A forked command line differs from ``python -m harness`` in nothing but that modules are loaded already. The process
that workers are forked of can be forked here, too, instead of importing torch once more; it forgets the modules that it
would not have. What the environment decides while torch is imported cannot be changed here: who passes such variables
starts a process.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from harness.project.paths import PYTHON_OPTIONS

REPOSITORY = Path(__file__).resolve().parent.parent
#: Variables that count when Python or torch begin.
_AT_START = ("PYTHON", "OMP_", "LD_", "MKL_", "CUDA_", "TORCH")
#: Kinds of commands: those that judge get processes that become a lane and a zygote.
_HARNESS, _PLAIN = b"harness", b"plain"
#: Other people's modules that commands import.
_MODULES = (
    *("click", "jinja2", "multiprocessing.connection", "rich.console", "rich.table", "sqlite3", "tomllib", "tqdm"),
    "torch._dynamo",  # torch imports it when it works out the sizes of a problem's tensors
)
#: The packages of the harness that command lines and lanes import.
_PACKAGES = ("executors", "judge", "project", "records", "report", "scanning", "system", "timing")
_COMMANDS = ("harness.__main__", "harness.commands.evaluate", "harness.commands.evaluation_run")
#: The modules of the harness that a zygote has.
_of_workers: set[str] = set()


class _Server:
    """A server, which starts when it is first asked."""

    def __init__(self) -> None:
        self._environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        self._lock = threading.Lock()
        self._ours: socket.socket | None = None

    def link(self) -> socket.socket:
        """Where it takes requests."""
        with self._lock:
            if self._ours is None:
                self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                command = [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())]
                self._process = subprocess.Popen(
                    command, cwd=REPOSITORY, env=self._environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
                )
                theirs.close()
            return self._ours

    def can_run(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Whether a command may be forked: Python, with nothing changed that counts when Python begins."""
        changed = {name for name, value in environment.items() if self._environment.get(name) != value}
        changed |= self._environment.keys() - environment.keys()
        is_python = command[0] == sys.executable and (not command[1].startswith("-") or command[1] in ("-c", "-m"))
        return is_python and not any(name.startswith(_AT_START) for name in changed)

    def close(self) -> None:
        """End the server."""
        if self._ours is not None:
            self._ours.close()
            self._process.wait()


_SERVER = _Server()
close = _SERVER.close


def popen(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
    """What ``subprocess.Popen`` does, for a command that begins with ``sys.executable``."""
    words = [str(word) for word in command]
    if tuple(words[1 : 1 + len(PYTHON_OPTIONS)]) == PYTHON_OPTIONS:  # as the server has them
        del words[1 : 1 + len(PYTHON_OPTIONS)]
    environment = {**os.environ} if options.get("env") is None else options["env"]
    if not _SERVER.can_run(words, environment):
        return subprocess.Popen([str(word) for word in command], **options)
    return _Forked(words, **{**options, "env": environment})


def run(command: Sequence[str | Path], *, check: bool = False, **options: Any) -> subprocess.CompletedProcess[Any]:
    """What ``subprocess.run`` does, for a command that begins with ``sys.executable``."""
    given = options.pop("input", None)
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if given is not None:
        options["stdin"] = subprocess.PIPE
    with popen(command, **options) as process:
        try:
            out, err = process.communicate(given)
        except BaseException:
            process.kill()
            raise
    finished = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        finished.check_returncode()
    return finished


class _Forked(subprocess.Popen[Any]):
    """A process that the server forks, with all else that ``subprocess`` does for a child."""

    def _execute_child(self, *given: Any) -> None:
        # As ``subprocess`` calls it: the pipes' ends are the child's and this process's in turns, for three streams.
        command, passed, cwd, environment, pipes, session, group = *given[0:1], *given[4:7], given[10:16], *given[21:23]
        body = {
            "command": command,
            "cwd": os.fspath(cwd or Path.cwd()),
            "environment": environment,
            "passed": passed,
            "session": session,
            "group": group,
        }
        streams = [number if end == -1 else end for number, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        self._told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tempfile.TemporaryFile() as told:
            told.write(json.dumps(body).encode())
            told.flush()
            kind = _HARNESS if command[1:2] == ["-m"] and command[2].split(".")[0] == "harness" else _PLAIN
            socket.send_fds(_SERVER.link(), [kind], [told.fileno(), theirs.fileno(), *streams, *passed])
        theirs.close()
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self.pid = int(self._told.recv(64))
        self._child_created = True

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if flags & os.WNOHANG and not select.select([self._told], [], [], 0)[0]:
            return 0, 0
        said = self._told.recv(64)
        self._told.close()
        return self.pid, int(said) if said else signal.SIGKILL

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                number, status = self._try_wait(os.WNOHANG) if self.returncode is None else (0, 0)
                if number:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def _serve(ours: socket.socket) -> None:
    """Answer requests until the other end is closed."""
    while True:
        kind, descriptors, _, _ = socket.recv_fds(ours, 8, 32)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not kind:
            return
        if not os.fork():
            ours.close()
            _wait_for_one(kind, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _wait_for_one(kind: bytes, told: int, answer: int, *descriptors: int) -> NoReturn:
    """Be the parent of a forked process: tell its number, and its status at its end."""
    child = os.fork()
    if not child:
        os.close(answer)
        try:
            code = _command(kind, told, descriptors)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
            code = 1
        _leave(code)
    for descriptor in (told, *descriptors):
        os.close(descriptor)
    with socket.socket(fileno=answer) as link, contextlib.suppress(BrokenPipeError):
        link.send(str(child).encode())
        _, status = os.waitpid(child, 0)
        link.send(str(status).encode())
    os._exit(0)


def _leave(code: int) -> NoReturn:
    """End as an interpreter does, without taking torch's half a million objects apart one by one."""
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads, as multiprocessing does here
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class _Spare:
    """A process that becomes the first of its kind that a command line or a lane needs, or ends with it.

    Args:
        become: What it does once it is needed: gets its descriptors, which begin at 3, and what it is told.
        held: Descriptors that are not for it.
    """

    def __init__(self, become: Callable[[dict[str, Any]], None], held: Sequence[int] = ()):
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._number = os.fork()
        if not self._number:
            self._ours.close()
            for descriptor in held:
                os.close(descriptor)
            _wait_and_become(theirs, become)
            os._exit(0)
        theirs.close()

    def started(self, theirs: socket.socket, said: int, told: Mapping[str, Any]) -> int:
        """Have it begin, with a link and what it prints to; its number, 0 where it has begun already."""
        number, self._number = self._number, 0
        if number:
            socket.send_fds(self._ours, [json.dumps(dict(told)).encode()], [theirs.fileno(), said])
            self._ours.close()
        return number

    def fileno(self) -> int:
        """The descriptor of its end."""
        return self._ours.fileno()

    def keep(self, number: int) -> None:
        """Have its descriptor be this one."""
        os.dup2(self._ours.detach(), number, inheritable=False)
        self._ours = socket.socket(fileno=number)


def _wait_and_become(told: socket.socket, become: Callable[[dict[str, Any]], None]) -> None:
    """What ``subprocess.Popen`` and a fresh interpreter do beside importing; nothing where it is not needed."""
    own = _Spare(_zygote) if become is _lane else None  # workers must not find in their memory what is told
    data, descriptors, _, _ = socket.recv_fds(told, 1 << 16, 2)
    if len(descriptors) != 2:
        return
    theirs, said = descriptors
    nothing = os.open(os.devnull, os.O_RDONLY)
    aside = [fcntl.fcntl(one, fcntl.F_DUPFD, 5) for one in (nothing, said, said, theirs)]
    for number, given in enumerate(aside):
        os.dup2(given, number)
    if own is not None:
        own.keep(4)
        _adopt(own)
    os.closerange(4 if own is None else 5, os.sysconf("SC_OPEN_MAX"))
    body = json.loads(data)
    os.environ.clear()
    os.environ.update(body["environment"])
    os.chdir(body["cwd"])
    sys.path[0] = body["cwd"]
    become(body)


def _zygote(_: dict[str, Any]) -> None:
    """Be what workers are forked of."""
    for name in [name for name in sys.modules if name.startswith("harness.") and name not in _of_workers]:
        module = sys.modules.pop(name)
        package, _, last = name.rpartition(".")
        if getattr(sys.modules.get(package), last, None) is module:
            delattr(sys.modules[package], last)
    os.setsid()
    sys.argv = ["harness.worker"]
    from harness.worker.__main__ import main

    main(socket.socket(fileno=3))


def _lane(_: dict[str, Any]) -> None:
    """Be a lane."""
    os.setpgid(0, 0)
    sys.argv = ["harness.executors.lane_process", "3"]
    from harness.executors.lane_process import main

    code = main()
    sys.stderr.flush()
    os._exit(code)


def _adopt(spare: _Spare) -> None:
    """Have this process's first zygote be the spare one."""
    from harness.judge.process import zygote

    start = zygote.Zygote._started

    def started(self: zygote.Zygote, theirs: socket.socket, said: IO[bytes]) -> zygote.Process:
        number = spare.started(theirs, said.fileno(), {"environment": zygote.environment(), "cwd": "/"})
        return zygote.AdoptedProcess(number) if number else start(self, theirs, said)

    zygote.Zygote._started = started  # type: ignore[method-assign]


def _adopt_lane(spare: _Spare) -> None:
    """Have this process's first lane be the spare one."""
    from harness.executors import lane_handle
    from harness.judge.process.zygote import AdoptedProcess, Process

    start = lane_handle.LaneProcess._started

    def started(self: lane_handle.LaneProcess, theirs: socket.socket) -> Process:
        number = spare.started(theirs, sys.stderr.fileno(), {"environment": dict(os.environ), "cwd": str(Path.cwd())})
        return AdoptedProcess(number) if number else start(self, theirs)

    lane_handle.LaneProcess._started = started  # type: ignore[method-assign]


def _modules_of_packages() -> list[str]:
    """The modules of ``_PACKAGES`` that need no optional package."""
    folder = REPOSITORY / "harness"
    found = [path for package in _PACKAGES for path in sorted((folder / package).rglob("*.py"))]
    names = [".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__") for path in found]
    return [name for name in names if importlib.util.find_spec(name) is not None and not name.endswith("__main__")]


def _remember() -> None:
    """Have this process know what every command asks of the machine, which costs it programs and reading."""
    from harness.device.environment import describe
    from harness.emulator import toolchain
    from harness.emulator.compiler import find_compiler, torch_paths

    describe(find_compiler().version)
    toolchain.emulator_digest()
    toolchain._runtime_digest(find_compiler(), torch_paths())


def _command(kind: bytes, told: int, descriptors: Sequence[int]) -> int:
    # Before this process reads the command: workers must not find that in their memory.
    spares = [_Spare(_zygote, descriptors), _Spare(_lane, descriptors)] if kind == _HARNESS else []
    with os.fdopen(told, "rb") as file:
        file.seek(0)
        body: dict[str, Any] = json.load(file)
    aside = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 1000) for one in descriptors]
    for one in descriptors:
        os.close(one)
    for spare in spares:
        spare.keep(fcntl.fcntl(spare.fileno(), fcntl.F_DUPFD_CLOEXEC, 1000))
    for one, number in zip(aside, (0, 1, 2, *body["passed"]), strict=True):
        os.dup2(one, number)
        os.close(one)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        was = getattr(sys, name)  # it has buffers, and takes what it is for a file, which another thing may be now
        now = open(number, mode, encoding=was.encoding, errors=was.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, now)
        setattr(sys, f"__{name}__", now)
    if body["session"]:
        os.setsid()
    elif body["group"] != -1:
        os.setpgid(0, body["group"])
    os.environ.clear()
    os.environ.update(body["environment"])
    os.chdir(body["cwd"])
    sys.path[0] = body["cwd"]
    if spares:
        _adopt(spares[0])
        _adopt_lane(spares[1])
    return _program(*body["command"][1:])


def _program(first: str, *words: str) -> int:
    """Run what Python's arguments name."""
    if (first, words[:1]) == ("-m", ("harness",)):
        sys.argv = [str(REPOSITORY / "harness" / "__main__.py"), *words[1:]]
        from harness.__main__ import run

        return run()
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    if first == "-m":
        sys.argv = list(words)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the server has imported the module
            _, spec, code = runpy._get_module_details(words[0])  # type: ignore[attr-defined]
        main.__dict__.update(__spec__=spec, __package__=spec.parent, __file__=spec.origin)
        sys.argv[0] = spec.origin
    elif first == "-c":
        sys.argv = ["-c", *words[1:]]
        code = compile(words[0], "<string>", "exec")
    else:
        sys.argv = [first, *words]
        sys.path[0] = str(Path(first).resolve().parent)
        main.__dict__["__file__"] = first
        code = compile(Path(first).read_bytes(), first, "exec")
    exec(code, main.__dict__)
    return 0


if __name__ == "__main__":
    from harness.worker.zygote import import_all

    import_all()
    _of_workers.update(name for name in sys.modules if name.startswith("harness."))
    for name in (*_MODULES, *_COMMANDS, *_modules_of_packages()):
        importlib.import_module(name)
    _remember()
    for one in [*weakref.finalize._registry]:  # type: ignore[attr-defined] # torch's own take long at each end
        one.atexit = False
    gc.collect()
    gc.freeze()  # what is forked does not look through, and so copy, the objects of all modules
    with contextlib.suppress(ConnectionResetError):
        _serve(socket.socket(fileno=int(sys.argv[1])))
