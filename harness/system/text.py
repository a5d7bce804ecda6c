"""Makes text by others safe to print: candidates' words, file names, exception messages."""

from __future__ import annotations

import re

#: Maximum length of a kernel's name. Template arguments of libraries run to thousands of
#: characters.
MAX_NAME_CHARACTERS = 200
MAX_BARE_NAME_CHARACTERS = 40
#: The longest code that is parsed. The tree of the worst text takes some 700 bytes a character.
MAX_CODE_CHARACTERS = 1 << 20
_FORMAT_STRING = re.compile(r"(?<![^\W\d])(?:[fF][rR]?|[rR][fF])[\"']")
#: The limit for braces times characters of a text with f-strings. A text at the limit takes Python
#: 3.11 some 0.2 s longer to parse than one without f-strings.
_MOST_LOOKED_AT = 250_000_000
#: What GitHub Actions takes for a command: a line that begins with two colons, or ``##[`` anywhere.
_COMMAND = re.compile(r"^([^\S\n]*)::|##\[", re.MULTILINE)


def printable(text: str) -> str:
    """Escapes control characters except newline and tab, which protects the terminal."""
    return "".join(one if one.isprintable() or one in "\n\t" else _spelt_out(one) for one in text)


def without_commands(text: str) -> str:
    """Escapes a text as ``printable`` does, and what GitHub Actions takes for a command, for what a step prints."""
    return _COMMAND.sub(lambda found: r"#\x23[" if found[1] is None else rf"{found[1]}:\x3a", printable(text))


def one_line(text: str) -> str:
    """Escapes all control characters of a name, also newlines and bytes that are not UTF-8."""
    return "".join(one if one.isprintable() else _spelt_out(one) for one in text)


def storable(text: str) -> str:
    """Escapes what UTF-8 cannot hold: a file's name may contain bytes that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def shortened(text: str, most: int) -> str:
    """Shortens a text to a maximum length, with dots at the end."""
    return text if len(text) <= most else text[: most - 3] + "..."


def has_costly_fields(text: str) -> bool:
    """Returns whether a program's f-strings have so many fields that parsing them takes seconds.

    Before Python 3.12 the parser reads an f-string from its beginning for each of its fields.
    """
    return text.count("{") * len(text) > _MOST_LOOKED_AT and _FORMAT_STRING.search(text) is not None


def is_costly_to_parse(text: str) -> bool:
    """Returns whether parsing a program takes seconds or gigabytes: it is long, or has such f-strings."""
    return len(text) > MAX_CODE_CHARACTERS or has_costly_fields(text)


def kernel_name(kernel: str) -> str:
    """Strips the return type and the arguments from a demangled kernel name.

    For example, ``space::tiles<4>(float*)`` becomes ``space::tiles<4>``.
    """
    depth, end = 0, len(kernel)
    for position, character in enumerate(kernel):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0 and not kernel.startswith("(anonymous", position):
            end = position
            break
    return shortened(kernel[:end].removeprefix("void "), MAX_NAME_CHARACTERS)


def bare_kernel_name(kernel: str) -> str:
    """Strips namespaces and template arguments as well, and cuts what is still long.

    For example, ``void at::native::tiles<4, at::F<float> >(float*)`` becomes ``tiles``.
    """
    name = kernel_name(kernel).partition("<")[0].rpartition("::")[2]
    return shortened(name, MAX_BARE_NAME_CHARACTERS)


def words_of(error: BaseException) -> str:
    """Returns an exception's type and message in one string.

    If the message itself raises an exception, the string says so.
    """
    kind = type(error).__name__
    try:
        text = str(error).strip()
    except BaseException as another:  # __str__ is the author's code and may do anything
        return f"{kind} (its __str__ raised {type(another).__name__})"
    return f"{kind}: {text}" if text else kind


def _spelt_out(one: str) -> str:
    return f"\\x{ord(one):02x}" if ord(one) < 0x100 else one.encode("unicode_escape").decode("ascii")
