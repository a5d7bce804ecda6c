"""Keeps problems that a program gives as text, since records, replays and bundles read a problem's file again."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from harness.errors import HarnessError, UsageError
from harness.system.files import MAX_SOURCE_BYTES, write_whole

#: Folder of the home with a folder for each text, named after its digest.
FOLDER = "problems"
_DIGITS = 16


def keep_problem(home: Path, text: str, name: str | None = None) -> Path:
    """Writes a problem's text to a file that stays, and returns its path.

    The same text under the same name always has the same path.

    Args:
        home: ``HARNESS_HOME``.
        text: The problem's text.
        name: The problem's name, a Python identifier of ASCII; None for one made of the digest.

    Raises:
        UsageError: The name or the text cannot be a problem's.
        HarnessError: The file cannot be written.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise UsageError("the problem's text has half of a surrogate pair: give valid Unicode") from None
    if len(data) > MAX_SOURCE_BYTES:
        raise UsageError(f"the problem's text has {len(data):,} bytes; the limit is {MAX_SOURCE_BYTES:,}")
    digest = hashlib.sha256(data).hexdigest()[:_DIGITS]
    name = f"problem_{digest}" if name is None else name
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name) is None:
        raise UsageError(f"{name[:100]!r} cannot name a problem: use up to 100 letters, digits and _, no digit first")
    path = home / FOLDER / digest / f"{name}.py"
    try:
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
    except OSError as error:
        raise HarnessError(f"cannot keep the problem's text in {home}: {error.strerror or error}") from None
    return path
