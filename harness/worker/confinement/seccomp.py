"""Refuses system calls to the worker, or allows them only on itself (seccomp).

The kernel's documentation describes seccomp in ``userspace-api/seccomp_filter``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from harness.worker.confinement.kernel import Missing, checked, libc

#: Call numbers on x86_64 and aarch64, None if the machine has no such call. Sources:
#: ``arch/x86/entry/syscalls/syscall_64.tbl`` and ``include/uapi/asm-generic/unistd.h``.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # calls that reach other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "pidfd_send_signal": (424, 424), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "perf_event_open": (298, 241), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "prlimit64": (302, 261),
    "fcntl": (72, 25), "ioctl": (16, 29),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "migrate_pages": (256, 238), "move_pages": (279, 239),
    # sockets
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242),
    # passing descriptors, which count against every process of the user while they are in flight
    "sendmsg": (46, 211), "sendmmsg": (307, 269),
    # objects that outlive a process
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # attributes and times of files that belong to the user
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    # resources that the machine or the user has a fixed number of
    "inotify_init": (253, None), "inotify_init1": (294, 26), "io_setup": (206, 0),
    # memory that is in no process's address space
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "vmsplice": (278, 75),
    # truncating the user's files, which Landlock can refuse from its third version on
    "truncate": (76, 45), "open": (2, None), "openat": (257, 56), "openat2": (437, 437),
    # namespaces and mounts; clone3 keeps its flags in memory, where no filter sees them, and the C
    # library falls back to clone
    "clone": (56, 220), "clone3": (435, 435), "unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51),
    "pivot_root": (155, 41), "mount": (165, 40), "umount2": (166, 39), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_by_handle_at": (304, 265),
    # the kernel and the machine
    "bpf": (321, 280), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "fanotify_init": (300, 262),
    "syslog": (103, 116), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "iopl": (172, None), "ioperm": (173, None),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "prctl": (157, 167),
}  # fmt: skip
#: The column of the table above, and the kernel's mark for calls of this architecture.
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_AF_UNIX = 1
#: Socket types whose connected pairs can send to nobody else. A datagram socket could name another
#: socket in ``sendmsg``.
_STREAM, _SEQPACKET = 1, 5
_SOCKET_TYPE = 0xF
#: The first argument of ``setpriority`` and ``ioprio_set`` when the second one is a process.
_PRIORITY_OF_PROCESS, _IO_PRIORITY_OF_PROCESS = 0, 1
#: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET.
_NEW_NAMESPACES = 0x7E020000
#: CLONE_PARENT makes the new process a child of the judge. The judge looks for a candidate's
#: processes below the worker and would miss it.
_CHILD_OF_THE_JUDGE = 0x8000

#: Calls that act on the process or thread that their first argument names.
_SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
#: F_SETOWN and F_SETOWN_EX of ``fcntl``, FIOSETOWN and SIOCSPGRP of ``ioctl``. They choose the
#: process that the kernel signals when a descriptor is ready, which could be the judge.
_SET_OWNER = {"fcntl": (8, 15), "ioctl": (0x8901, 0x8902)}
#: F_SETLEASE and F_SETDELEG make other processes wait when they open a file, such as another candidate's
#: compiler. F_NOTIFY watches a folder. F_SETPIPE_SZ uses up the memory that all pipes of the user
#: share. F_SET_RW_HINT and F_SET_FILE_RW_HINT leave a mark on a file.
_ON_FILES_OF_OTHERS = (1024, 1040, 1026, 1031, 1036, 1038)
#: The second byte of the ``ioctl`` commands of file systems: flags and projects ("f", "X"),
#: versions ("v"), FAT's attributes ("r"), btrfs and f2fs. The GPU driver's commands have 0 or "F"
#: there.
_FILE_SYSTEM_COMMANDS, _COMMAND_GROUP = (0x6600, 0x5800, 0x7600, 0x7200, 0x9400, 0xF500), 0xFF00
#: Calls that change a file's times, mode or owner. The kernel does nothing and reports success,
#: since programs that copy or unpack files treat an error as a failure. ``_touching`` has the one
#: exception.
_TIMES = ("utime", "utimes", "futimesat", "utimensat")
_MODES_AND_OWNERS = ("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat")
#: O_TRUNC and both bits of the access mode. A call with O_TRUNC and no other of these bits opens
#: for reading, and Linux truncates the file all the same.
_SHORTENS_WHAT_IT_READS, _TRUNCATE_AND_MODE = 0x200, 0x203
#: A process that stops being the parent of its orphans would hide them from the judge.
_PR_SET_CHILD_SUBREAPER = 36
#: Calls that change scheduling. They could slow down the judge or the baseline while one of them
#: times or is timed. A call may only name the calling thread (0) or the worker's first thread. The
#: filter cannot tell other threads of the worker from threads of the judge and the baseline.
_SCHEDULING = (
    *("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"),
    *("migrate_pages", "move_pages"),
)
#: Calls that the GPU's driver needs at its start: it binds a Unix socket and listens. Nobody can
#: connect through it. It may also use anonymous files; the judge's memory watch sees those that are
#: mapped.
_OF_THE_DRIVER = {"bind", "listen", "memfd_create"}

_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP_EQUAL, _JUMP_AT_LEAST = 0x15, 0x35
#: Offsets in ``struct seccomp_data``: the call's number, its architecture, and the low half of its
#: first argument.
_AT_NUMBER, _AT_ARCHITECTURE, _AT_FIRST = 0, 4, 16
_X32_CALLS = 0x40000000
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2


class _Rule(NamedTuple):
    """A rule that allows a call if the masked argument has one of these values.

    With ``refused`` the rule allows the call only if the argument has none of them.
    """

    call: str
    argument: int
    values: Sequence[int]
    mask: int = 0xFFFFFFFF
    refused: bool = False


def filter_calls(trusted: Sequence[int], on_gpu: bool, owns_files: bool = True, keeps_lengths: bool = False) -> None:
    """Refuses sockets, access to other processes, signals to the judge, and changes to the machine.

    Args:
        trusted: The judge's process and the zygote's.
        on_gpu: Whether the GPU's driver must start: it opens a Unix socket and listens.
        owns_files: Whether the user of this process owns files outside the worker's folder.
        keeps_lengths: Whether Landlock keeps such files from being truncated.

    Raises:
        Missing: The module does not know this machine's call numbers, or the kernel has no seccomp.
    """
    known = _MACHINES.get(platform.machine())
    if known is None:
        raise Missing(f"the harness does not know the numbers of system calls on {platform.machine()}")
    column, mark = known
    numbers = {call: of_machine for call, both in _NUMBERS.items() if (of_machine := both[column]) is not None}
    rules = [rule for rule in _rules(trusted, on_gpu, keeps_lengths) if rule.call in numbers]
    answers = dict.fromkeys(numbers.keys() - {rule.call for rule in rules}, errno.EPERM)
    answers |= {"clone3": errno.ENOSYS, "openat2": errno.ENOSYS}
    for call in (*_TIMES, *_MODES_AND_OWNERS):
        if call in answers:
            answers[call] = 0
    let_through = {
        *(_OF_THE_DRIVER if on_gpu else ()),
        *(() if owns_files else _MODES_AND_OWNERS),
        *(("truncate", "open", "openat", "openat2") if keeps_lengths else ()),
    }
    program = _program(numbers, mark, rules, {call: answers[call] for call in sorted(answers.keys() - let_through)})
    code = b"".join(program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    checked("seccomp", libc().prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0))


def _rules(trusted: Sequence[int], on_gpu: bool, keeps_lengths: bool) -> list[_Rule]:
    """Returns the rules for calls that the filter judges by their arguments.

    Every rule of a call must allow it.
    """
    own = (0, os.getpid())
    groups = []
    for process in trusted:
        with contextlib.suppress(ProcessLookupError):  # a zygote may have ended while its workers live on
            groups.append(-os.getpgid(process))
    to_trusted = tuple(dict.fromkeys((*trusted, *(-process for process in trusted), *groups, -1)))
    unix = [_Rule("socketpair", 0, (_AF_UNIX,)), _Rule("socketpair", 1, (_STREAM, _SEQPACKET), _SOCKET_TYPE)]
    if on_gpu:
        unix += [rule._replace(call="socket") for rule in unix]
    opens = () if keeps_lengths else (("open", 1), ("openat", 2))
    return [
        *unix,
        *(_Rule(call, at, (_SHORTENS_WHAT_IT_READS,), _TRUNCATE_AND_MODE, refused=True) for call, at in opens),
        *(_Rule(call, 0, to_trusted, refused=True) for call in _SIGNALS),
        *(_Rule(call, 1, commands, refused=True) for call, commands in _SET_OWNER.items()),
        _Rule("fcntl", 1, _ON_FILES_OF_OTHERS, refused=True),
        _Rule("ioctl", 1, _FILE_SYSTEM_COMMANDS, _COMMAND_GROUP, refused=True),
        _Rule("prctl", 0, (_PR_SET_CHILD_SUBREAPER,), refused=True),
        *(_Rule(call, 0, own) for call in _SCHEDULING),
        *(_Rule("setpriority", 0, (_PRIORITY_OF_PROCESS,)), _Rule("setpriority", 1, own)),
        *(_Rule("ioprio_set", 0, (_IO_PRIORITY_OF_PROCESS,)), _Rule("ioprio_set", 1, own)),
        _Rule("prlimit64", 0, (0,)),
        _Rule("clone", 0, (0,), _NEW_NAMESPACES | _CHILD_OF_THE_JUDGE),
    ]


def _program(numbers: dict[str, int], mark: int, rules: Sequence[_Rule], answers: Mapping[str, int]) -> list[bytes]:
    """Builds the filter in classic BPF.

    ``answers`` has the error number for each call that the filter never lets through; 0 reports
    success.
    """
    program = [
        _line(_LOAD, _AT_ARCHITECTURE),
        _line(_JUMP_EQUAL, mark, if_true=1),
        _line(_RETURN, _KILL),
        _line(_LOAD, _AT_NUMBER),
    ]
    if platform.machine() == "x86_64":  # the x32 numbers of the same calls
        program += [_line(_JUMP_AT_LEAST, _X32_CALLS, if_false=1), _line(_RETURN, _REFUSE | errno.EPERM)]
    program += _touching(numbers["utimensat"])
    for call, error in answers.items():
        program += [_line(_JUMP_EQUAL, numbers[call], if_false=1), _line(_RETURN, _REFUSE | error)]
    for rule in rules:
        block = _block(rule)
        program += [_line(_LOAD, _AT_NUMBER), _line(_JUMP_EQUAL, numbers[rule.call], if_false=len(block)), *block]
    return [*program, _line(_RETURN, _ALLOW)]


def _touching(number: int) -> list[bytes]:
    """Refuses to set a named file's times to now; answers other ``utimensat`` calls with success.

    ``pathlib.Path.touch`` sets the times first and creates the file only if that fails. So the
    filter must not report success to it.
    """
    return [
        _line(_JUMP_EQUAL, number, if_false=6),
        _line(_LOAD, _AT_FIRST + 8 * 2),  # the times: null means now
        _line(_JUMP_EQUAL, 0, if_false=3),
        _line(_LOAD, _AT_FIRST + 8 * 1),  # the path: null means the descriptor's own file
        _line(_JUMP_EQUAL, 0, if_true=1),
        _line(_RETURN, _REFUSE | errno.EPERM),
        _line(_RETURN, _REFUSE),
    ]


def _block(rule: _Rule) -> list[bytes]:
    """Builds the instructions that refuse a call by its rule.

    A call that passes continues after them.
    """
    lines = [_line(_LOAD, _AT_FIRST + 8 * rule.argument), _line(_AND, rule.mask)]
    for left, value in zip(range(len(rule.values) - 1, -1, -1), rule.values, strict=True):
        lines.append(_line(_JUMP_EQUAL, value, if_true=left + (0 if rule.refused else 1)))
    if rule.refused:  # an argument with none of the values jumps over the refusal
        lines[-1] = _line(_JUMP_EQUAL, rule.values[-1], if_false=1)
    return [*lines, _line(_RETURN, _REFUSE | errno.EPERM)]


def _line(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Encodes a BPF instruction: code, numbers of instructions to jump over, operand."""
    return struct.pack("HBBI", code, if_true, if_false, operand & 0xFFFFFFFF)
