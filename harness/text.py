"""Text that others wrote, made safe to print: a candidate's words, a file's name, an exception's message."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text without control characters but newline and tab: a candidate's words must not drive a terminal."""
    return "".join(one if one.isprintable() or one in "\n\t" else _spelt_out(one) for one in text)


def one_line(text: str) -> str:
    """A name as it is shown: every control character spelt out, newlines and bytes that are no UTF-8 too."""
    return "".join(one if one.isprintable() else _spelt_out(one) for one in text)


def shortened(text: str, most: int) -> str:
    """Text of at most so many characters, with dots where the rest was."""
    return text if len(text) <= most else text[: most - 3] + "..."


def words_of(error: BaseException) -> str:
    """An exception's type and message in one string; for one whose message cannot be had, that."""
    kind = type(error).__name__
    try:
        text = str(error).strip()
    except BaseException as another:  # its __str__ is code of whoever raised it, and may do anything
        return f"{kind} (its __str__ raised {type(another).__name__})"
    return f"{kind}: {text}" if text else kind


def _spelt_out(one: str) -> str:
    return f"\\x{ord(one):02x}" if ord(one) < 0x100 else one.encode("unicode_escape").decode("ascii")
