"""Runs a process that has imported torch and forks others, because the import dominates short ones.

A forked process differs from ``python -m harness`` or ``python -c`` in nothing but that modules are loaded already. The
process that workers are forked of can be forked here, too, instead of importing torch once more; it forgets the modules
that it would not have. What the environment decides while torch is imported cannot be changed here: who passes such
variables starts a process.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from tests.forked_process import ForkedProcess

REPOSITORY = Path(__file__).resolve().parent.parent
#: Variables that count when Python or torch begin.
_AT_START = ("PYTHON", "OMP_", "LD_", "MKL_", "CUDA_", "TORCH")
#: Other people's modules that commands import.
_MODULES = (
    *("click", "jinja2", "multiprocessing.connection", "rich.console", "rich.table", "sqlite3", "tomllib", "tqdm"),
    "torch._dynamo",  # torch imports it when it works out the sizes of a problem's tensors
)
#: The same of packages that need not be there.
_OPTIONAL = ("matplotlib.figure", "openai")
#: The packages of the harness that command lines and lanes import.
_PACKAGES = ("executors", "judge", "project", "records", "report", "scanning", "system", "timing")
_COMMANDS = ("harness.__main__", "harness.commands.evaluate", "harness.commands.evaluation_run")
#: The modules of the harness that a zygote has.
_of_workers: set[str] = set()


class ForkServers:
    """As many servers as are asked at the same time; each answers one at a time.

    All have the variables that they are given, beside those of this process.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = variables
        self._environment = {**os.environ, **variables, "PYTHONPATH": str(REPOSITORY)}
        self._all: list[_Server] = []
        self._free: list[_Server] = []
        self._seeds: list[_Seed] = []
        self._lock = threading.Lock()

    def can_run(self, environment: Mapping[str, str]) -> bool:
        """Whether a command line with these variables may be forked."""
        changed = {name for name, value in environment.items() if self._environment.get(name) != value}
        return not any(name.startswith(_AT_START) for name in changed)

    def run(
        self, arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], code: str | None = None
    ) -> tuple[int, str, str]:
        """Exit code (negative for a signal), stdout and stderr of ``python -m harness ARGUMENTS`` or ``python -c``."""
        with self._lock:
            server = self._free.pop() if self._free else self._new_server()
        answer = server.run(
            {"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment), "code": code}
        )
        with self._lock:
            self._free.append(server)
        return answer

    def plant(self) -> None:
        """Have this process fork its zygotes, lanes and services, too."""
        with self._lock:
            server = self._new_server()
            self._free.append(server)
        seed = server.seed()
        self._seeds.append(seed)
        _plant(seed, self.can_run)

    def _new_server(self) -> _Server:
        server = _Server(self._environment)
        self._all.append(server)
        return server

    def close(self) -> None:
        """End the servers."""
        for seed in self._seeds:
            seed.close()
        for server in self._all:
            server.close()


class _Server:
    """A running server."""

    def __init__(self, environment: Mapping[str, str]):
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.fork_server", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()

    def run(self, body: Mapping[str, Any]) -> tuple[int, str, str]:
        with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            told.write(json.dumps(body).encode())
            told.flush()
            kind = b"command" if body["code"] is None else b"program"
            socket.send_fds(self._ours, [kind], [told.fileno(), out.fileno(), err.fileno()])
            code = int(self._ours.recv(64))
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode().replace("\r\n", "\n"))
        return code, texts[0], texts[1]

    def seed(self) -> _Seed:
        """A seed that lives until its link is closed."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(self._ours, [b"seed"], [theirs.fileno()])
        theirs.close()
        self._ours.recv(64)
        return _Seed(ours)

    def close(self) -> None:
        self._ours.close()
        self._process.wait()


def _serve(ours: socket.socket) -> None:
    """Answer requests until the other end is closed."""
    while True:
        kind, descriptors, _, _ = socket.recv_fds(ours, 8, 3)
        if not descriptors:
            return
        child = os.fork()
        if child == 0:
            ours.close()
            if kind == b"seed":
                _be_seed(socket.socket(fileno=descriptors[0]))
            try:
                code = _command(*descriptors) if kind == b"command" else _program(*descriptors)
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            except BaseException:
                traceback.print_exc()
                code = 1
            _leave(code)
        for descriptor in descriptors:
            os.close(descriptor)
        status = 0 if kind == b"seed" else os.waitpid(child, 0)[1]
        ours.send(str(os.waitstatus_to_exitcode(status)).encode())


def _leave(code: int) -> NoReturn:
    """End as an interpreter does, without taking torch's half a million objects apart one by one."""
    threading._shutdown()  # type: ignore[attr-defined] # waits for threads, as multiprocessing does here
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class _Seed:
    """The link to a process that knows nothing but modules; zygotes, lanes and services are forked of it."""

    def __init__(self, link: socket.socket):
        self._link = link
        self._lock = threading.Lock()

    def started(self, kind: str, descriptors: Sequence[int], environment: Mapping[str, str], cwd: str) -> ForkedProcess:
        """Start a process, as this one's child, that prints to the first descriptor and has the others from 3 on."""
        from harness.system.processes import adopt_orphans
        from tests.forked_process import ForkedProcess  # judge's modules, which a seed must not have before it forks

        adopt_orphans()
        body = json.dumps({"environment": dict(environment), "cwd": cwd}).encode()
        with self._lock:
            self._link.send(kind.encode())
            socket.send_fds(self._link, [body], list(descriptors))
            return ForkedProcess(int(self._link.recv(64)))

    def close(self) -> None:
        """End the seed."""
        self._link.close()

    def detach(self) -> int:
        """The link's descriptor, which this object no longer closes."""
        return self._link.detach()


def _new_seed() -> _Seed:
    """Fork a seed, which ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if not os.fork():
        ours.close()
        _be_seed(theirs)
    theirs.close()
    return _Seed(ours)


def _be_seed(link: socket.socket) -> NoReturn:
    """Fork what is asked for, and tell its number; only the forked process reads its environment."""
    os.closerange(3, link.fileno())
    os.closerange(link.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    with contextlib.suppress(ConnectionResetError):
        while kind := link.recv(64).decode():
            read, write = os.pipe()
            between = os.fork()
            if not between:
                _grow(kind, link, write)
            os.close(write)
            with os.fdopen(read, encoding="ascii") as told:
                number = told.read()  # and wait until the forked process has read what is meant for it
            os.waitpid(between, 0)
            link.send(number.encode())
    os._exit(0)


def _grow(kind: str, link: socket.socket, told: int) -> NoReturn:
    """Fork a process that is nobody's child, and tell its number."""
    number = os.fork()
    if number:
        os.write(told, str(number).encode())
        os._exit(0)
    try:
        kept = [_new_seed().detach()] if kind == "service" else []
        _begin(link, kept)
        {"zygote": _zygote, "lane": _lane, "service": _service}[kind]()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _begin(link: socket.socket, kept: Sequence[int]) -> None:
    """What ``subprocess.Popen`` and a fresh interpreter do beside importing; what is kept comes last."""
    data, (said, *further), _, _ = socket.recv_fds(link, 1 << 20, 4)
    nothing = os.open(os.devnull, os.O_RDONLY)
    given = (nothing, said, said, *further, *kept)
    aside = [fcntl.fcntl(one, fcntl.F_DUPFD, len(given)) for one in given]
    for number, one in enumerate(aside):
        os.dup2(one, number)
    os.closerange(len(given), os.sysconf("SC_OPEN_MAX"))
    body = json.loads(data)
    os.environ.clear()
    os.environ.update(body["environment"])
    os.chdir(body["cwd"])
    del sys.path[0]  # Python has the option -P there


def _zygote() -> None:
    """Be what workers are forked of."""
    for name in [name for name in sys.modules if name.startswith("harness.") and name not in _of_workers]:
        module = sys.modules.pop(name)
        package, _, last = name.rpartition(".")
        if getattr(sys.modules.get(package), last, None) is module:
            delattr(sys.modules[package], last)
    os.setsid()
    sys.argv = ["harness.worker"]
    from harness.worker.zygote import serve

    serve(socket.socket(fileno=3))


def _lane() -> None:
    """Be a lane."""
    os.setpgid(0, 0)
    sys.argv = ["harness.executors.lane_start", "3"]
    from harness.executors.lane_start import become_lane

    become_lane(Connection(3))


def _service() -> None:
    """Be what judges for an evaluator."""
    os.setpgid(0, 0)
    sys.argv = ["harness.executors.service", "3", "4"]
    _plant(_Seed(socket.socket(fileno=5)))
    from harness.executors import child_main, service

    child_main.leave(service.main())


def _plant(seed: _Seed, can_run: Callable[[Mapping[str, str]], bool] = lambda _: True) -> None:
    """Have this process fork its zygotes, lanes and services of the seed, where the environment lets it."""
    from harness import evaluator
    from harness.executors import lane_handle
    from harness.judge.process import zygote

    start_zygote, start_lane = zygote.Zygote._started, lane_handle.LaneProcess._started
    start_service = evaluator._service_process

    def new_zygote(new: zygote.Zygote, theirs: socket.socket, said: IO[bytes]) -> zygote.Process:
        if not can_run(os.environ):
            return start_zygote(new, theirs, said)
        return seed.started("zygote", (said.fileno(), theirs.fileno()), zygote.start_environment(), "/")

    def new_lane(new: lane_handle.LaneProcess, theirs: socket.socket) -> zygote.Process:
        here, environment = str(Path.cwd()), zygote.start_environment()
        if not can_run(os.environ):
            return start_lane(new, theirs)
        return seed.started("lane", (sys.stderr.fileno(), theirs.fileno()), environment, here)

    def new_service(theirs: int, watched: int) -> Any:
        environment = {**os.environ, "PYTHONPATH": evaluator.import_path()}
        if not can_run(os.environ):
            return start_service(theirs, watched)
        return seed.started("service", (2, theirs, watched), environment, str(Path.cwd()))

    zygote.Zygote._started = new_zygote  # type: ignore[method-assign]
    lane_handle.LaneProcess._started = new_lane  # type: ignore[method-assign]
    evaluator._service_process = new_service


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


def _program(told: int, *streams: int) -> int:
    body = _begun(told, *streams)
    sys.argv = ["-c", *body["arguments"]]
    exec(compile(body["code"], "<string>", "exec"), {"__name__": "__main__"})
    return 0


def _command(told: int, *streams: int) -> int:
    # Before this process reads the command: workers must not find that in their memory.
    seed = _new_seed()
    body = _begun(told, *streams)
    sys.argv = [str(REPOSITORY / "harness" / "__main__.py"), *body["arguments"]]
    from harness.__main__ import run

    _plant(seed)
    return run()


def _begun(told: int, *streams: int) -> dict[str, Any]:
    """Read what to do, and take the streams, environment and folder that it names."""
    with os.fdopen(told, "rb") as file:
        file.seek(0)
        body: dict[str, Any] = json.load(file)
    for stream, target in zip(streams, (1, 2), strict=True):
        os.dup2(stream, target)
        os.close(stream)
    os.environ.clear()
    os.environ.update(body["environment"])
    os.chdir(body["cwd"])
    sys.path[0] = body["cwd"]
    return body


if __name__ == "__main__":
    from harness.worker.zygote import import_all

    import_all()
    _of_workers.update(name for name in sys.modules if name.startswith("harness."))
    for name in (*_MODULES, *_COMMANDS, *_modules_of_packages()):
        importlib.import_module(name)
    for name in _OPTIONAL:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    _remember()
    for one in [*weakref.finalize._registry]:  # type: ignore[attr-defined] # torch's own take long at each end
        one.atexit = False
    gc.collect()
    gc.freeze()  # what is forked does not look through, and so copy, the objects of all modules
    with contextlib.suppress(ConnectionResetError):
        _serve(socket.socket(fileno=int(sys.argv[1])))
