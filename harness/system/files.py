"""Reading a file that a user named (no device, no pipe, never more than a program text can be), and writing one."""

from __future__ import annotations

import codecs
import contextlib
import errno
import hashlib
import io
import os
import stat
import tempfile
import tokenize
from pathlib import Path

#: Far above any program, far below what would hurt to hold in memory and to keep with a record.
MAX_SOURCE_BYTES = 16 << 20
#: The two lines that may declare an encoding are in the first bytes; detection reads no further.
_HEAD_BYTES = 1 << 16
#: How the names of encodings begin that Python decodes character by character.
_PLAIN_ENCODINGS = ("utf-8", "ascii", "iso8859", "cp", "koi8", "mac-", "gb", "big5", "euc", "shift_jis")


def read_source(path: Path) -> bytes:
    """The bytes of a program text; a pipe never blocks, an endless file is never read.

    Raises:
        OSError: It cannot be read, is no regular file, or has more than ``MAX_SOURCE_BYTES``; ``strerror`` says so.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, f"it is {_kind(status.st_mode)}, not a regular file", str(path))
        if status.st_size > MAX_SOURCE_BYTES:
            what = f"it has {status.st_size:,} bytes, and {MAX_SOURCE_BYTES:,} are the most that is read"
            raise OSError(errno.EFBIG, what, str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_SOURCE_BYTES)
    finally:
        os.close(descriptor)


class StrangeEncoding(SyntaxError):
    """A program declares a codec that is no plain encoding of text."""


def declared_encoding(data: bytes) -> str:
    """The encoding that a program's text declares (PEP 263), UTF-8 where it declares none.

    Raises:
        SyntaxError: Python has no such codec, or the declaration cannot be read.
        StrangeEncoding: The codec is no plain encoding: some take time that grows with the square of the length, and
            others make another program of the text.
    """
    lines = data[:_HEAD_BYTES].replace(b"\r\n", b"\n").replace(b"\r", b"\n")  # where Python's tokenizer ends lines
    encoding, _ = tokenize.detect_encoding(io.BytesIO(lines).readline)
    name = codecs.lookup(encoding).name
    if not name.startswith(_PLAIN_ENCODINGS):
        raise StrangeEncoding(f"the encoding {encoding!r} is not accepted for a program: use UTF-8")
    return encoding


def source_text(data: bytes) -> str:
    """A program's text: in the encoding that it declares, UTF-8 where it declares none or one that fails."""
    try:
        return data.decode(declared_encoding(data))
    except (SyntaxError, ValueError, LookupError):
        return data.decode("utf-8-sig", "backslashreplace")


def source_bytes(text: str, digest: str) -> bytes | None:
    """The bytes that ``source_text`` made a text of, known by their sha256; None where they cannot be had again."""
    encodings = ["utf-8", "utf-8-sig"]
    with contextlib.suppress(SyntaxError, LookupError):
        encodings.append(declared_encoding(text[:_HEAD_BYTES].encode("utf-8", "replace")))
    for encoding in encodings:
        with contextlib.suppress(ValueError, LookupError):
            data = text.encode(encoding)
            if hashlib.sha256(data).hexdigest() == digest:
                return data
    return None


def write_whole(path: Path, data: bytes) -> None:
    """Write beside the file and rename over it, so that no reader ever sees half of it.

    Raises:
        OSError: It cannot be written, or is no regular file; what was there is as it was.
    """
    with contextlib.suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise OSError(f"it is {_kind(mode)}, not a file")
    umask = os.umask(0)
    os.umask(umask)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".written-", delete=False) as staged:
        try:
            staged.write(data)
            staged.flush()
            os.fchmod(staged.fileno(), 0o666 & ~umask)
            Path(staged.name).replace(path)
        finally:
            Path(staged.name).unlink(missing_ok=True)  # gone where it was renamed


def is_there(path: Path) -> bool:
    """Whether there is anything of that name, be it a link that leads nowhere."""
    return os.path.lexists(path)


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "something else")
