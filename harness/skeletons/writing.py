"""Writes new files into a project and never replaces an existing one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

from harness.errors import TemplateError, UsageError
from harness.rendering.declarations import checked_name

FILES = Path(__file__).resolve().parent / "files"


def new_name(name: str, what: str) -> str:
    """Returns the name if a new file or folder may have it.

    Raises:
        UsageError: The name has other characters than a-z, 0-9 and ``_``, or is reserved.
    """
    try:
        checked_name(name, what)
    except TemplateError as error:
        raise UsageError(str(error)) from None
    if name in ("__init__", "common", "prompts"):
        raise UsageError(f"{what} {name!r}: this name has another meaning in a project; choose another.")
    return name


def filled(file: str, **values: str) -> str:
    """Returns the text of a skeleton file with its ``$name`` placeholders filled."""
    return Template((FILES / file).read_text(encoding="utf-8")).substitute(values)


def write_new(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Writes new files in order, either all of them or none.

    Args:
        folder: Folder for the files; the function creates it if it is missing.
        texts: Texts by file name.

    Returns:
        The paths of the files.

    Raises:
        UsageError: One of the files exists or cannot be written.
    """
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / name
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        if isinstance(error, FileExistsError):
            raise UsageError(f"{error.filename} already exists; choose another name, or remove it") from None
        raise UsageError(f"cannot write in {folder}: {error}") from None
    return written
