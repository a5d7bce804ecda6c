"""Drops the worker's rights: it can gain none, and it keeps none of root's (Linux)."""

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
#: User ids that no account has and that containers map. systemd, too, takes them for services
#: without a fixed user.
_FIRST_USER, _USERS = 61184, 4336
_PR_CAPBSET_DROP = 24
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES_VERSION, _MOST_CAPABILITIES = 0x20080522, 64


def no_new_privileges() -> None:
    """Keeps this process from starting programs that have more rights, whatever their files say."""
    checked("prctl", libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def is_root() -> bool:
    """Tells whether this process has root's rights to give up."""
    return sys.platform == "linux" and os.geteuid() == 0


def become_nobody(folder: Path, readable: Sequence[str]) -> None:
    """Switches to a user who owns nothing but the worker's folder.

    Raises:
        Missing: Such a user could not read what the worker needs, or the change of user failed.
    """
    for place in (*readable, str(folder.parent)):
        closed = _closed_to_others(Path(place))
        if closed is not None:
            raise Missing(f"other users cannot enter {closed}: chmod o+rx, or install where they may read")
    devices = (path for path in map(Path, gpu_devices()) if not path.is_dir())
    closed_device = next((path for path in devices if path.stat().st_mode & 0o006 != 0o006), None)
    if closed_device is not None:
        raise Missing(f"other users cannot open {closed_device}: chmod o+rw")
    user = _FIRST_USER + os.getpid() % _USERS
    try:
        _give(folder, user)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError as error:
        with contextlib.suppress(OSError):  # back to root, its owner before
            os.setresgid(0, 0, 0)
            _give(folder, 0)
        raise Missing(f"cannot become user {user}: {error.strerror}") from None
    # After the change of user the kernel hides parts of this process from itself, as for a
    # set-user-id program.
    if why := show_memory():
        raise Missing(f"prctl: {why}")


def _give(folder: Path, user: int) -> None:
    """Gives a folder and its contents to a user."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)


def _closed_to_others(place: Path) -> Path | None:
    """Returns the first path on the way to a place that other users may not read or pass.

    The place itself counts as well.
    """
    for path in (*reversed(place.parents), place):
        try:
            mode = path.stat().st_mode
        except OSError:
            return path
        if not mode & 0o001 or (path == place and not mode & 0o004):
            return path
    return None


def drop_capabilities(folder: Path, readable: Sequence[str]) -> None:
    """Drops all capabilities of root, whoever the user is.

    Raises:
        Missing: Without them the worker could not read what it needs, or the kernel refused.
    """
    library = libc()
    foreign = next((place for place in (str(folder), *readable) if _needs_rights(Path(place))), None)
    if foreign is not None:
        raise Missing(f"only root can open {foreign}: chmod o+rx, or change its owner to root")
    number = _CAPSET.get(platform.machine())
    if number is None:
        raise Missing(f"the harness does not know the number of the system call capset on {platform.machine()}")
    # Calls for a capability that does not exist or is gone already do nothing.
    for capability in range(_MOST_CAPABILITIES):
        library.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITIES_VERSION, 0)
    checked("capset", library.syscall(number, header, b"\0" * 24))


def _needs_rights(place: Path) -> bool:
    """Tells whether only root's rights can read a place: another user owns it and closed it."""
    if os.geteuid() != 0:
        return False  # become_nobody has already checked
    for path in (*place.parents, place):
        status = path.stat()
        if status.st_uid != 0 and status.st_mode & 0o005 != 0o005:
            return True
    return False
