"""Limits the files that the worker may open to its own folder and what it needs to run (Landlock).

The kernel's documentation describes Landlock in ``userspace-api/landlock``.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from harness.worker.confinement.kernel import Missing, checked, gpu_devices, libc

_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
#: All file rights that each version of Landlock knows: 13 in version 1, and one more each in
#: versions 2, 3 and 5.
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
#: The rights that a rule for a file may name. The kernel refuses a rule for a file that names
#: rights of folders.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
#: From version 6 on, Landlock can keep abstract sockets and signals within the confined processes.
_SCOPES = 0b11
#: From version 3 on, Landlock can keep a file from being truncated.
TRUNCATION_VERSION = 3

#: The places that compilers, Python, torch and the CUDA driver read besides their own folders.
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    *("/sys", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/modules", "/proc/devices"),
    *("/proc/loadavg", "/proc/version", "/proc/sys", "/proc/driver"),
)
_DEVICES = ("/dev/dxg", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


def landlock_version() -> int:
    """Returns the kernel's version of Landlock; below 1 if it has none."""
    version: int = libc().syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return version


def restrict_files(folder: Path, readable: Sequence[str], on_gpu: bool) -> None:
    """Lets this process read what it needs, write to its own folder, and open nothing else.

    Args:
        folder: The worker's own folder.
        readable: Further files and folders that it may read.
        on_gpu: Whether the GPU's driver must start. It names its threads through files of
            ``/proc/self``, so this process may write there. That also lets the worker undo the
            setting that makes the kernel end it first when memory runs out.

    Raises:
        Missing: The kernel has no Landlock, or refused the call.
    """
    library = libc()
    version = landlock_version()
    if version < 1:
        raise Missing(f"the kernel has no Landlock ({os.strerror(ctypes.get_errno())})")
    every = _RIGHTS[min(version, 5)]
    scopes = _SCOPES if version >= 6 else 0
    ruleset = (
        struct.pack("QQQ", every, 0, scopes)
        if version >= 6
        else struct.pack("QQ", every, 0)[: 8 if version < 4 else 16]
    )
    handle = checked(
        "landlock_create_ruleset",
        library.syscall(_LANDLOCK_CREATE_RULESET, ruleset, ctypes.c_size_t(len(ruleset)), ctypes.c_uint32(0)),
    )
    try:
        for path in (*_SYSTEM, *readable):
            _allow(library, handle, path, _READ & every)
        of_own_process = _READ | (_WRITE_FILE | _TRUNCATE if on_gpu else 0)
        _allow(library, handle, f"/proc/{os.getpid()}", of_own_process & every)
        for path in (*_DEVICES, *gpu_devices()):
            _allow(library, handle, path, (_READ | _WRITE_FILE | _TRUNCATE | _IOCTL_DEVICE) & every)
        _allow(library, handle, str(folder), every)
        checked("landlock_restrict_self", library.syscall(_LANDLOCK_RESTRICT_SELF, handle, ctypes.c_uint32(0)))
    finally:
        os.close(handle)


def _allow(library: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Adds a rule for a path; does nothing if the path cannot be opened."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112 - no path object needed
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, handle)
        checked(
            f"landlock_add_rule for {path}",
            library.syscall(_LANDLOCK_ADD_RULE, ruleset, ctypes.c_int(1), rule, ctypes.c_uint32(0)),
        )
    finally:
        os.close(handle)
