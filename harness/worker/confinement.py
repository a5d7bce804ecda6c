"""What the worker gives up before it meets a candidate (Linux): rights to gain, files, sockets, other processes.

Each layer stands by itself. What a machine does not have is said, and the others hold. Calls go through libc by ctypes;
the numbers are those of the kernel's own headers, and Landlock and seccomp are described in its documentation
(``userspace-api/landlock``, ``userspace-api/seccomp_filter``).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

#: Bytes that one file may grow to: libraries and compilers' scratch files are far smaller.
MAX_FILE_BYTES = 2 << 30
MAX_OPEN_FILES = 4096

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2


class Confined(NamedTuple):
    """A layer: ``why`` it is missing, empty where it holds."""

    layer: str
    why: str


class _Missing(Exception):
    """A layer cannot be had here; the message says why."""


def confine(folder: Path, readable: Sequence[str], judge: int) -> list[Confined]:
    """Confine this process and all that it will start.

    Args:
        folder: The worker's own folder, the only place where it may write.
        readable: Further files and folders that it may read and execute.
        judge: The judge's process, which it may not signal.

    Returns:
        Every layer, in the order in which they were put on.
    """
    layers: list[tuple[str, Callable[[], None]]] = [
        ("no_new_privs", _no_new_privileges),
        ("limits", _limit_resources),
        *(
            [
                ("user", lambda: _become_nobody(folder, readable)),
                ("capabilities", lambda: _drop_capabilities(folder, readable)),
            ]
            if _is_root()
            else []
        ),
        ("files", lambda: _restrict_files(folder, readable)),
        ("system_calls", lambda: _filter_calls(judge)),
    ]
    found = []
    for name, put_on in layers:
        try:
            if sys.platform != "linux":
                raise _Missing("needs Linux")
            put_on()
        except _Missing as missing:
            found.append(Confined(name, str(missing)))
        else:
            found.append(Confined(name, ""))
    return found


def _call(what: str, result: int) -> int:
    """A libc call's result.

    Raises:
        _Missing: It is negative.
    """
    if result < 0:
        raise _Missing(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _no_new_privileges() -> None:
    """No program that is started has more rights than this one, whatever its file says."""
    _call("prctl", _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _limit_resources() -> None:
    """Bound single files and open files; core dumps are off."""
    for kind, bound in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
    ):
        _, most = resource.getrlimit(kind)
        least = bound if most == resource.RLIM_INFINITY else min(bound, most)
        resource.setrlimit(kind, (least, least))


# ----------------------------------------------------------------- rights: where the harness runs as root

#: Users whom nobody is, within what a container maps; those that systemd, too, takes for services of no fixed user.
_FIRST_USER, _USERS = 61184, 4336
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 4, 24
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES_VERSION, _MOST_CAPABILITIES = 0x20080522, 64


def _is_root() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0


def _become_nobody(folder: Path, readable: Sequence[str]) -> None:
    """Go on as a user who owns nothing but the worker's folder."""
    for place in (*readable, str(folder.parent)):
        closed = _closed_to_others(Path(place))
        if closed is not None:
            raise _Missing(f"{closed} is closed to other users: chmod o+rx, or install where they may read")
    closed_device = next((path for path in _gpu_devices() if Path(path).stat().st_mode & 0o006 != 0o006), None)
    if closed_device is not None:
        raise _Missing(f"{closed_device} is closed to other users: chmod o+rw")
    user = _FIRST_USER + os.getpid() % _USERS
    try:
        _give(folder, user)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError as error:
        with contextlib.suppress(OSError):  # root's it was, and still may be
            os.setresgid(0, 0, 0)
            _give(folder, 0)
        raise _Missing(f"cannot become user {user}: {error.strerror}") from None
    # Changing users has made this process unreadable to itself in places, as for a program that is set-user-id.
    _call("prctl", _libc().prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))


def _give(folder: Path, user: int) -> None:
    """Make a folder and what is in it a user's own."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)


def _closed_to_others(place: Path) -> Path | None:
    """The first folder on the way to a place, or the place, that users in general may not read or pass."""
    for path in (*reversed(place.parents), place):
        try:
            mode = path.stat().st_mode
        except OSError:
            return path
        if not mode & 0o001 or (path == place and not mode & 0o004):
            return path
    return None


def _drop_capabilities(folder: Path, readable: Sequence[str]) -> None:
    """Keep none of root's rights, whoever the user is."""
    libc = _libc()
    foreign = next((place for place in (str(folder), *readable) if _needs_rights(Path(place))), None)
    if foreign is not None:
        raise _Missing(f"only root's rights open {foreign}: chmod o+rx, or let root own it")
    number = _CAPSET.get(platform.machine())
    if number is None:
        raise _Missing(f"the number of capset on {platform.machine()} is not known here")
    for capability in range(_MOST_CAPABILITIES):  # beyond the last, or where it is gone already, this does nothing
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITIES_VERSION, 0)
    _call("capset", libc.syscall(number, header, b"\0" * 24))


def _needs_rights(place: Path) -> bool:
    """Whether root without its rights could not read a place: somebody else's, and closed to others."""
    if os.geteuid() != 0:
        return False  # checked before the user was changed
    for path in (*place.parents, place):
        status = path.stat()
        if status.st_uid != 0 and status.st_mode & 0o005 != 0o005:
            return True
    return False


# ----------------------------------------------------------------- files: Landlock

_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
#: All rights over files that each version of Landlock knows: 13 in the first, one more each in 2, 3 and 5.
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
#: Rights that only a folder can have are refused for a file.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
#: From version 6 on abstract sockets and signals can be kept within the confined processes.
_SCOPES = 0b11

#: What compilers, Python, torch and the CUDA driver read besides their own folders.
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    *("/sys", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/modules", "/proc/devices"),
    *("/proc/loadavg", "/proc/version", "/proc/sys", "/proc/driver"),
)
_DEVICES = ("/dev/dxg", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


def _restrict_files(folder: Path, readable: Sequence[str]) -> None:
    """Let this process read what it needs to run, write to its own folder, and open nothing else."""
    libc = _libc()
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 1:
        raise _Missing(f"the kernel has no Landlock ({os.strerror(ctypes.get_errno())})")
    every = _RIGHTS[min(version, 5)]
    scopes = _SCOPES if version >= 6 else 0
    ruleset = (
        struct.pack("QQQ", every, 0, scopes)
        if version >= 6
        else struct.pack("QQ", every, 0)[: 8 if version < 4 else 16]
    )
    handle = _call(
        "landlock_create_ruleset",
        libc.syscall(_LANDLOCK_CREATE_RULESET, ruleset, ctypes.c_size_t(len(ruleset)), ctypes.c_uint32(0)),
    )
    try:
        for path in (*_SYSTEM, *readable):
            _allow(libc, handle, path, _READ & every)
        own = f"/proc/{os.getpid()}"
        _allow(libc, handle, own, (_READ | _WRITE_FILE | _TRUNCATE) & every)  # CUDA names its threads
        for path in (*_DEVICES, *_gpu_devices()):
            _allow(libc, handle, path, (_READ | _WRITE_FILE | _TRUNCATE | _IOCTL_DEVICE) & every)
        _allow(libc, handle, str(folder), every)
        _call("landlock_restrict_self", libc.syscall(_LANDLOCK_RESTRICT_SELF, handle, ctypes.c_uint32(0)))
    finally:
        os.close(handle)


def _gpu_devices() -> Iterator[str]:
    """The GPU driver's device files."""
    for path in sorted(Path("/dev").glob("nvidia*")):
        yield str(path)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Add a rule for a path; nothing where there is none."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - no path object needed
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, handle)
        _call(
            f"landlock_add_rule for {path}",
            libc.syscall(_LANDLOCK_ADD_RULE, ruleset, ctypes.c_int(1), rule, ctypes.c_uint32(0)),
        )
    finally:
        os.close(handle)


# ----------------------------------------------------------------- system calls: seccomp


class _Numbers(NamedTuple):
    """An architecture of seccomp: its mark, and the numbers of the calls that are filtered.

    Of ``socket`` only Unix ones are left, of ``prlimit`` only the process's own limits.
    """

    mark: int
    forbidden: dict[str, int]
    socket: int
    prlimit: int
    signals: dict[str, int]


#: ``arch/x86/entry/syscalls/syscall_64.tbl`` and ``include/uapi/asm-generic/unistd.h``.
_ARCHITECTURES = {
    "x86_64": _Numbers(
        0xC000003E,
        {
            "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "pidfd_getfd": 438, "kcmp": 312,
            "perf_event_open": 298, "bpf": 321, "userfaultfd": 323, "add_key": 248, "request_key": 249, "keyctl": 250,
            "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "setns": 308, "unshare": 272,
            "open_by_handle_at": 304, "kexec_load": 246, "kexec_file_load": 320, "init_module": 175,
            "finit_module": 313, "delete_module": 176, "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163,
            "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "clock_adjtime": 305, "quotactl": 179,
            "iopl": 172, "ioperm": 173, "io_uring_setup": 425, "sethostname": 170, "setdomainname": 171,
            "pidfd_send_signal": 424,
        },
        41,
        302,
        {"kill": 62, "tkill": 200, "tgkill": 234, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297},
    ),
    "aarch64": _Numbers(
        0xC00000B7,
        {
            "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "pidfd_getfd": 438, "kcmp": 272,
            "perf_event_open": 241, "bpf": 280, "userfaultfd": 282, "add_key": 217, "request_key": 218, "keyctl": 219,
            "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "setns": 268, "unshare": 97,
            "open_by_handle_at": 265, "kexec_load": 104, "kexec_file_load": 294, "init_module": 105,
            "finit_module": 273, "delete_module": 106, "reboot": 142, "swapon": 224, "swapoff": 225, "acct": 89,
            "settimeofday": 170, "clock_settime": 112, "adjtimex": 171, "clock_adjtime": 266, "quotactl": 60,
            "io_uring_setup": 425, "sethostname": 161, "setdomainname": 162,
            "pidfd_send_signal": 424,
        },
        198,
        261,
        {"kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240},
    ),
}  # fmt: skip
_AF_UNIX = 1
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
#: Offsets in ``struct seccomp_data``: the call's number, its architecture, the low half of the first argument.
_AT_NUMBER, _AT_ARCHITECTURE, _AT_FIRST = 0, 4, 16
_X32_CALLS = 0x40000000


def _filter_calls(judge: int) -> None:
    """Refuse network sockets, other processes' memory, signals to the judge, and what changes the machine."""
    numbers = _ARCHITECTURES.get(platform.machine())
    if numbers is None:
        raise _Missing(f"the numbers of system calls on {platform.machine()} are not known here")
    program = _program(numbers, judge)
    code = b"".join(program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    _call("seccomp", _libc().prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0))


def _program(numbers: _Numbers, judge: int) -> list[bytes]:
    """The filter in classic BPF: (code, jump if true, jump if false, operand) a line."""

    def line(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, operand & 0xFFFFFFFF)

    program = [
        line(_LOAD, _AT_ARCHITECTURE),
        line(_JUMP_EQUAL, numbers.mark, if_true=1),
        line(_RETURN, _KILL),
        line(_LOAD, _AT_NUMBER),
    ]
    if platform.machine() == "x86_64":  # the same calls under other numbers
        program += [line(_JUMP_AT_LEAST, _X32_CALLS, if_false=1), line(_RETURN, _REFUSE)]
    for number in numbers.forbidden.values():
        program += [line(_JUMP_EQUAL, number, if_false=1), line(_RETURN, _REFUSE)]
    for number, first in ((numbers.socket, _AF_UNIX), (numbers.prlimit, 0)):
        program += [
            line(_JUMP_EQUAL, number, if_false=4),
            line(_LOAD, _AT_FIRST),
            line(_JUMP_EQUAL, first, if_false=1),
            line(_RETURN, _ALLOW),
            line(_RETURN, _REFUSE),
        ]
    # Signals to the judge, its group, and everybody.
    targets = (judge, -judge, -os.getpgid(judge), -1)
    for number in numbers.signals.values():
        program += [line(_JUMP_EQUAL, number, if_false=len(targets) + 3), line(_LOAD, _AT_FIRST)]
        for left, target in zip(range(len(targets), 0, -1), targets, strict=True):
            program.append(line(_JUMP_EQUAL, target, if_true=left))
        program += [line(_RETURN, _ALLOW), line(_RETURN, _REFUSE)]
    return [*program, line(_RETURN, _ALLOW)]
