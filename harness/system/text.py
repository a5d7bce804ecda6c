"""Text that others wrote, made safe to print: a candidate's words, a file's name, an exception's message."""

from __future__ import annotations

#: The longest name of a kernel that is passed on: template arguments of libraries run to thousands of characters.
MAX_NAME_CHARACTERS = 200


def printable(text: str) -> str:
    """Text without control characters but newline and tab: a candidate's words must not drive a terminal."""
    return "".join(one if one.isprintable() or one in "\n\t" else _spelt_out(one) for one in text)


def one_line(text: str) -> str:
    """A name as it is shown: every control character spelt out, newlines and bytes that are no UTF-8 too."""
    return "".join(one if one.isprintable() else _spelt_out(one) for one in text)


def shortened(text: str, most: int) -> str:
    """Text of at most so many characters, with dots where the rest was."""
    return text if len(text) <= most else text[: most - 3] + "..."


def kernel_name(kernel: str) -> str:
    """A demangled kernel without return type and arguments: ``space::tiles<4>(float*)`` as ``space::tiles<4>``."""
    depth, end = 0, len(kernel)
    for position, character in enumerate(kernel):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0 and not kernel.startswith("(anonymous", position):
            end = position
            break
    return shortened(kernel[:end].removeprefix("void "), MAX_NAME_CHARACTERS)


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
