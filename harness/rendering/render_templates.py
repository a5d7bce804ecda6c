"""Finds a project's templates and renders them to solution files; ``render_jinja`` fills one in."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from harness.errors import TemplateError, suggestion
from harness.rendering.declarations import checked_name, read_declaration
from harness.rendering.parameters import Declaration
from harness.rendering.render_jinja import render_body
from harness.rendering.stamp import parse_stamp, stamped
from harness.rendering.values import Value
from harness.system.files import read_source, write_whole

PARAMS_FILE = "params.toml"


class Freshness(Enum):
    """State of a solution file in relation to its template."""

    FRESH = "fresh"
    MISSING = "missing"
    STALE = "stale"  # an earlier rendering; the template or its parameters have changed since
    EDITED = "edited by hand"  # the text does not match its stamp
    UNSTAMPED = "not rendered"  # another file has this name


@dataclass(frozen=True)
class Rendering:
    """The solution file of a template's variant.

    Attributes:
        path: Path where the file belongs.
        text: Text that it must contain.
    """

    path: Path
    text: str

    def freshness(self) -> Freshness:
        """Compares the rendering with the existing file.

        Raises:
            TemplateError: The file cannot be read.
        """
        current = self._current()
        if current is None:
            return Freshness.MISSING
        if current == self.text.encode():
            return Freshness.FRESH
        stamp = parse_stamp(current.decode(errors="replace"))
        if stamp is None:
            return Freshness.UNSTAMPED
        return Freshness.STALE if stamp.intact else Freshness.EDITED

    def diff(self) -> str:
        """Returns the unified diff from the existing file to the rendering."""
        current = (self._current() or b"").decode(errors="replace")
        lines = difflib.unified_diff(
            current.splitlines(), self.text.splitlines(), str(self.path), "as the template renders it", lineterm=""
        )
        return "".join(f"{line}\n" for line in lines)

    def _current(self) -> bytes | None:
        """Reads the existing file; returns None if there is none.

        Raises:
            TemplateError: The file cannot be read, or is not a regular file.
        """
        try:
            return read_source(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TemplateError(f"cannot read {self.path}: {error}") from None

    def write(self) -> bool:
        """Writes the file, whole or not at all.

        Returns:
            False if the file already exists with this text.

        Raises:
            TemplateError: The file cannot be written.
        """
        if self.freshness() is Freshness.FRESH:
            return False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, self.text.encode())
        except OSError as error:
            raise TemplateError(f"cannot write {self.path}: {error}") from None
        return True


def template_names(root: Path) -> list[str]:
    """Lists a project's templates: the folders of ``root/templates`` with a ``params.toml``."""
    return sorted(path.parent.name for path in (root / "templates").glob(f"*/{PARAMS_FILE}"))


def find_template(root: Path, name: str) -> Declaration:
    """Returns the declaration of a template.

    Raises:
        TemplateError: There is no template of that name, or its declaration is wrong.
    """
    known = template_names(root)
    if name not in known:
        raise TemplateError(f"no template {name!r} in {root / 'templates'}.{suggestion(name, known)}")
    declaration = read_declaration(root / "templates" / name / PARAMS_FILE)
    problems = [path.stem for path in (root / "problems").glob("*.py")]
    if declaration.problem not in problems:
        raise TemplateError(
            f"{declaration.path}: no problem {declaration.problem!r} in {root / 'problems'}."
            f"{suggestion(declaration.problem, problems)}"
        )
    return declaration


def find_variant_template(root: Path, name: str, variant: str | None) -> Declaration:
    """Returns the template that declares a variant.

    Args:
        root: Root folder of the project.
        name: A template, or a problem: then any of its templates may declare the variant.
        variant: The variant; None means the default variant.

    Raises:
        TemplateError: There is no such template, problem or variant, or a declaration is wrong.
    """
    templates = template_names(root)
    named = [find_template(root, name)] if name in templates else []
    if named and (variant is None or variant in named[0].variants):
        return named[0]
    solving = [one for one in (find_template(root, other) for other in templates) if one.problem == name]
    for declaration in solving:
        for one in declaration.variants.values():
            if one.default if variant is None else one.name == variant:
                return declaration
    if variant is not None and (named or solving):
        known = {one for declaration in named + solving for one in declaration.variants}
        raise TemplateError(f"{name!r} has no variant {variant!r}.{suggestion(variant or '', known)}")
    return find_template(root, name)


def render_text(root: Path, declaration: Declaration, settings: Mapping[str, Value]) -> str:
    """Returns the text of a solution file with its stamp.

    Args:
        root: Root folder of the project.
        declaration: Declaration of the template.
        settings: Parameters that differ from their defaults.

    Raises:
        TemplateError: A setting is not allowed or has no effect, or the template is wrong.
    """
    resolved = declaration.resolve(settings)
    body = render_body(root / "templates", declaration, resolved)
    for name, value in settings.items():
        default = declaration.parameters[name].default
        if value != default and render_body(root / "templates", declaration, {**resolved, name: default}) == body:
            raise TemplateError(
                f"template {declaration.template!r}: parameter {name!r} has no effect with these settings; "
                "leave it out."
            )
    return stamped(declaration.template, resolved, body)


def solution_path(root: Path, declaration: Declaration, name: str) -> Path:
    """Returns the path where a solution of that name belongs.

    Raises:
        TemplateError: The name is not valid for a file.
    """
    return root / "solutions" / declaration.problem / f"{checked_name(name, 'solution')}.py"


def render_variant(root: Path, declaration: Declaration, name: str | None) -> Rendering:
    """Renders the solution file of a variant; None as the name means the default variant.

    Raises:
        TemplateError: There is no such variant, or the template is wrong.
    """
    variant = declaration.default_variant() if name is None else declaration.variant(name)
    text = render_text(root, declaration, variant.settings)
    return Rendering(solution_path(root, declaration, variant.name), text)


def render_all(root: Path) -> Iterator[Rendering]:
    """Renders the variants of every template.

    A variant that is ``on_demand`` only counts where its file exists.

    Raises:
        TemplateError: A template is wrong, two variants have the same file, or a problem does not
            have exactly one default variant.
    """
    declarations = [find_template(root, name) for name in template_names(root)]
    _check_defaults(declarations)
    owners: dict[Path, str] = {}
    for declaration in declarations:
        for variant in declaration.variants.values():
            path = solution_path(root, declaration, variant.name)
            if path in owners:
                raise TemplateError(
                    f"templates {owners[path]!r} and {declaration.template!r} both render {path}; rename a variant."
                )
            owners[path] = declaration.template
            if not variant.on_demand or path.exists():
                yield render_variant(root, declaration, variant.name)


def _check_defaults(declarations: list[Declaration]) -> None:
    """Raises TemplateError unless each problem has one default variant over all its templates."""
    defaults: dict[str, list[str]] = {declaration.problem: [] for declaration in declarations}
    for declaration in declarations:
        for variant in declaration.variants.values():
            if variant.default:
                defaults[declaration.problem].append(f"{declaration.template}/{variant.name}")
    for problem, named in defaults.items():
        if len(named) != 1:
            raise TemplateError(
                f"problem {problem!r} has {len(named)} default variants ({', '.join(named) or 'none'}); "
                "mark exactly one with default = true."
            )
