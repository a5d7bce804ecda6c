"""Rights of the worker: none to gain, and where the harness is root, none of root's (Linux)."""

from __future__ import annotations

import contextlib
import os
import platform
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.system.processes import show_memory
from harness.worker.confinement.kernel import Missing, checked, gpu_devices, libc

_PR_SET_NO_NEW_PRIVS = 38
#: Users whom nobody is, within what a container maps; those that systemd, too, takes for services of no fixed user.
_FIRST_USER, _USERS = 61184, 4336
_PR_CAPBSET_DROP = 24
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES_VERSION, _MOST_CAPABILITIES = 0x20080522, 64


def no_new_privileges() -> None:
    """No program that is started has more rights than this one, whatever its file says."""
    checked("prctl", libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def is_root() -> bool:
    """Whether there are root's rights to give up."""
    return sys.platform == "linux" and os.geteuid() == 0


def become_nobody(folder: Path, readable: Sequence[str]) -> None:
    """Go on as a user who owns nothing but the worker's folder.

    Raises:
        Missing: Such a user could not read what the worker needs, or the user cannot be changed.
    """
    for place in (*readable, str(folder.parent)):
        closed = _closed_to_others(Path(place))
        if closed is not None:
            raise Missing(f"{closed} is closed to other users: chmod o+rx, or install where they may read")
    devices = (path for path in map(Path, gpu_devices()) if not path.is_dir())
    closed_device = next((path for path in devices if path.stat().st_mode & 0o006 != 0o006), None)
    if closed_device is not None:
        raise Missing(f"{closed_device} is closed to other users: chmod o+rw")
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
        raise Missing(f"cannot become user {user}: {error.strerror}") from None
    # Changing users has made this process unreadable to itself in places, as for a program that is set-user-id.
    if why := show_memory():
        raise Missing(f"prctl: {why}")


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


def drop_capabilities(folder: Path, readable: Sequence[str]) -> None:
    """Keep none of root's rights, whoever the user is.

    Raises:
        Missing: Without them the worker could not read what it needs, or the kernel refused.
    """
    library = libc()
    foreign = next((place for place in (str(folder), *readable) if _needs_rights(Path(place))), None)
    if foreign is not None:
        raise Missing(f"only root's rights open {foreign}: chmod o+rx, or let root own it")
    number = _CAPSET.get(platform.machine())
    if number is None:
        raise Missing(f"the number of capset on {platform.machine()} is not known here")
    for capability in range(_MOST_CAPABILITIES):  # beyond the last, or where it is gone already, this does nothing
        library.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITIES_VERSION, 0)
    checked("capset", library.syscall(number, header, b"\0" * 24))


def _needs_rights(place: Path) -> bool:
    """Whether root without its rights could not read a place: somebody else's, and closed to others."""
    if os.geteuid() != 0:
        return False  # checked before the user was changed
    for path in (*place.parents, place):
        status = path.stat()
        if status.st_uid != 0 and status.st_mode & 0o005 != 0o005:
            return True
    return False
