"""Reads program texts that a user names, and writes files atomically.

Reading accepts no device and no pipe, and never more bytes than a program text can have.
"""

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

#: Maximum size of a source file. It is far above any program, and small enough to hold in memory
#: and to keep with a record.
MAX_SOURCE_BYTES = 16 << 20
#: The two lines that may declare an encoding lie in these first bytes. Detection reads no further.
_HEAD_BYTES = 1 << 16
#: Prefixes of the encodings that Python decodes character by character.
_PLAIN_ENCODINGS = ("utf-8", "ascii", "iso8859", "cp", "koi8", "mac-", "gb", "big5", "euc", "shift_jis")


def read_source(path: Path) -> bytes:
    """Returns the bytes of a program text; see ``read_regular`` for what it refuses."""
    return read_regular(path, MAX_SOURCE_BYTES)


def read_regular(path: Path, limit: int) -> bytes:
    """Returns the bytes of a file without blocking on a pipe or reading an endless file.

    Args:
        path: The file.
        limit: The most bytes that it may have.

    Raises:
        OSError: The file cannot be read, is no regular file, or is too large. ``strerror`` gives
            the reason.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:  # NUL, or half of a surrogate pair
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, f"it is {_kind(status.st_mode)}, not a regular file", str(path))
        if status.st_size > limit:
            what = f"it has {status.st_size:,} bytes; the limit is {limit:,}"
            raise OSError(errno.EFBIG, what, str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(min(limit, max(status.st_size, 1 << 20))) or b""  # None: it would block
    finally:
        os.close(descriptor)


class StrangeEncoding(SyntaxError):
    """A program declares a codec that is not a plain text encoding."""


def declared_encoding(data: bytes) -> str:
    """Returns the encoding that a program's text declares (PEP 263), or UTF-8 if it declares none.

    Raises:
        SyntaxError: Python has no such codec, or the declaration cannot be read.
        StrangeEncoding: The codec is no plain encoding. Some codecs take quadratic time, and others
            turn the text into another program.
    """
    lines = data[:_HEAD_BYTES].replace(b"\r\n", b"\n").replace(b"\r", b"\n")  # as Python's tokenizer ends lines
    encoding, _ = tokenize.detect_encoding(io.BytesIO(lines).readline)
    name = codecs.lookup(encoding).name
    if not name.startswith(_PLAIN_ENCODINGS):
        raise StrangeEncoding(f"the encoding {encoding!r} is not accepted for a program: use UTF-8")
    return encoding


def source_text(data: bytes) -> str:
    """Decodes a program's text with the encoding that it declares.

    The function uses UTF-8 if the text declares no encoding or the declared one fails.
    """
    try:
        return data.decode(declared_encoding(data))
    except (SyntaxError, ValueError, LookupError):
        return data.decode("utf-8-sig", "backslashreplace")


def source_bytes(text: str, digest: str) -> bytes | None:
    """Returns the bytes from which ``source_text`` made a text, or None if it cannot restore them.

    Args:
        text: The decoded text.
        digest: sha256 of the bytes, in hex.
    """
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
    """Writes a file atomically: to a temporary file in the same folder, then by a rename.

    Raises:
        OSError: The file cannot be written, or the path is not a regular file. Its old content is
            unchanged.
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
            Path(staged.name).unlink(missing_ok=True)  # missing if the rename succeeded


def is_there(path: Path) -> bool:
    """Returns whether a path exists, even as a broken link."""
    return os.path.lexists(path)


def is_file(path: Path) -> bool:
    """Returns whether a path names a file, also if no file can have that name."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "something else")
