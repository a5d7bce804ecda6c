"""Reads a raw answer as lines of text, in whatever form it was saved."""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import AnswerError
from harness.system.files import MAX_SOURCE_BYTES, read_source
from harness.system.text import one_line

STANDARD_INPUT = "-"
#: Byte-order marks of encodings other than UTF-8. The longer marks come first, because UTF-32's
#: little-endian mark begins with that of UTF-16.
_FOREIGN_MARKS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
#: Tokens with which a model ends its turn; some tools leave them in the saved answer.
_END_TOKEN = re.compile(r"(?:</s>|<eos>|<end_of_turn>|<\|\w{1,30}\|>|<\uff5c[^\uff5c\n]{1,40}\uff5c>)\Z")
_LONGEST_END_TOKEN = 64


@dataclass(frozen=True)
class RawAnswer:
    """The text of an answer.

    Attributes:
        shown: Name of the answer in messages: the path that the user wrote, or ``standard input``.
        name: Name of its file without folders; ``-`` for standard input.
        lines: Its lines without line ends (LF, CRLF or CR), byte-order mark and trailing blank
            lines.
        digest: sha256 of its bytes, in hex.
    """

    shown: str
    name: str
    lines: tuple[str, ...] = field(repr=False)
    digest: str


def read_answer(source: str) -> RawAnswer:
    """Reads an answer.

    Args:
        source: Path of a file, or ``-`` for standard input.

    Raises:
        AnswerError: The answer cannot be read, is too large, is empty or is not UTF-8 text.
    """
    shown = "standard input" if source == STANDARD_INPUT else one_line(source)
    data = _standard_input() if source == STANDARD_INPUT else _file(source, shown)
    return answer_of(data, shown, one_line(Path(source).name))


def answer_of(data: bytes, shown: str, name: str) -> RawAnswer:
    """Returns the answer that bytes hold.

    Args:
        data: The text in UTF-8.
        shown: Name of the answer in messages.
        name: Name of its file.

    Raises:
        AnswerError: The answer is too large, is empty or is not UTF-8 text.
    """
    if len(data) > MAX_SOURCE_BYTES:
        raise AnswerError(f"{shown} has more than {MAX_SOURCE_BYTES:,} bytes, which is the limit")
    text = _text(data, shown).replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise AnswerError(f"{shown} is empty; give the file that holds the model's whole answer")
    lines = _without_end_tokens(text).split("\n")
    return RawAnswer(shown, name, tuple(lines), hashlib.sha256(data).hexdigest())


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise AnswerError("standard input is closed; give the file that holds the answer")
    data = sys.stdin.buffer.read(MAX_SOURCE_BYTES + 1)
    if len(data) > MAX_SOURCE_BYTES:
        raise AnswerError(
            f"standard input has more than {MAX_SOURCE_BYTES:,} bytes, which is the limit; give one answer at a time"
        )
    return data


def _file(source: str, shown: str) -> bytes:
    try:
        return read_source(Path(source))
    except OSError as error:
        raise AnswerError(
            f"cannot read answer {shown}: {error.strerror}; give a text file, or - for standard input"
        ) from None


def _text(data: bytes, shown: str) -> str:
    for mark, encoding in _FOREIGN_MARKS.items():
        if data.startswith(mark):
            raise AnswerError(f"{shown} is {encoding}, not UTF-8; convert it: iconv -f {encoding} -t UTF-8")
    nul = data.find(b"\0")
    if nul >= 0:
        raise AnswerError(f"{shown} is not text: byte {nul} is zero; give the model's answer as UTF-8 text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise AnswerError(
            f"{shown} is not UTF-8 text: byte 0x{data[error.start]:02x} in line {line}; save it as UTF-8, or "
            "convert it: iconv -f ITS_ENCODING -t UTF-8"
        ) from None


def _without_end_tokens(text: str) -> str:
    """Returns the text without the end-of-turn tokens and blank lines at its end.

    A fence does not close in a line that ends with such a token.
    """
    end = len(text)
    while True:
        while end > 0 and text[end - 1].isspace():
            end -= 1
        match = _END_TOKEN.search(text[max(0, end - _LONGEST_END_TOKEN) : end])
        if match is None:
            return text[:end]
        end -= len(match[0])
