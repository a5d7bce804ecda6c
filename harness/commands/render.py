"""``render``: renders templates into solution files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from harness.errors import EXIT_NOT_PASSED, EXIT_PASSED, UsageError
from harness.project.paths import project_root, refuse_installed, shown
from harness.project.settings import option
from harness.rendering.parameters import Declaration
from harness.rendering.render_templates import (
    Freshness,
    Rendering,
    find_variant_template,
    render_all,
    render_text,
    render_variant,
    solution_path,
)


@click.command(name="render")
@click.argument("template", required=False)
@click.option(
    "-p",
    "--param",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a parameter of the template.",
)
@click.option(
    "--variant",
    metavar="NAME",
    help="Start from this variant; `list templates` names all. [default: the template's default variant]",
)
@click.option("--name", metavar="NAME", help="Write solutions/<problem>/NAME.py.")
@click.option("-o", "--output", metavar="FILE", help="Write to this file; - is standard output.")
@option("root")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Render the variants of every template, those on demand only where a file exists.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing. If a file is missing, stale or edited, show the difference and exit with 1.",
)
def command(
    *,
    template: str | None,
    assignments: tuple[str, ...],
    variant: str | None,
    name: str | None,
    output: str | None,
    root: str | None,
    everything: bool,
    check: bool,
) -> int:
    """Render templates into solution files.

    `render TEMPLATE` writes solutions/<problem>/<variant>.py; `render --all` renders all templates.

    TEMPLATE is a template, or a problem: then --variant may name a variant of any of its templates.
    Without --variant it is the default variant alone.

    \b
    Examples:
      python -m harness render --all
      python -m harness render group_norm --variant two_kernels
      python -m harness render group_norm -p threads=128 -o mine.py
      python -m harness render --check
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    folder = project_root(root)
    if everything or (check and template is None):
        if template is not None or assignments or variant or name or output:
            raise UsageError(
                "--all renders every variant as declared: leave out the template, -p, --variant, --name and -o."
            )
        renderings: Iterable[Rendering] = list(render_all(folder))
    else:
        if template is None:
            raise UsageError("name a template, or give --all.")
        if name is not None and output is not None:
            raise UsageError("--name and -o both choose where to write; give one of them.")
        rendering = _one(
            folder,
            find_variant_template(folder, template, variant),
            pairs(assignments),
            variant=variant,
            name=name,
            output=output,
        )
        if output == "-" and not check:
            click.echo(rendering.text, nl=False)
            return EXIT_PASSED
        renderings = [rendering]
    if check:
        return _check(renderings)
    if output is None:
        refuse_installed(folder)
    return _write(renderings)


def pairs(assignments: tuple[str, ...]) -> dict[str, str]:
    """Splits the values of ``-p`` into names and texts.

    Raises:
        UsageError: A value is not KEY=VALUE, or sets a parameter again.
    """
    pairs: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise UsageError(f"-p {assignment!r} is not KEY=VALUE.")
        if key in pairs:
            raise UsageError(f"-p sets {key!r} twice: {pairs[key]!r} and {value!r}.")
        pairs[key] = value
    return pairs


def _one(
    root: Path,
    declaration: Declaration,
    assignments: dict[str, str],
    *,
    variant: str | None,
    name: str | None,
    output: str | None,
) -> Rendering:
    """Renders the file that the options ask for.

    The file of a declared variant only gets the parameters that the variant declares.
    """
    if not assignments and name is None and output is None:
        return render_variant(root, declaration, variant)
    if name is None and output is None:
        raise UsageError("-p makes a solution that no variant declares: choose where to write with --name or -o.")
    if name in declaration.variants and assignments:
        raise UsageError(
            f"--name {name} is a declared variant of template {declaration.template!r}; choose another name."
        )
    base = declaration.variant(variant) if variant is not None else declaration.default_variant()
    text = render_text(root, declaration, {**base.settings, **declaration.parse(assignments)})
    path = Path(output) if output is not None else solution_path(root, declaration, name or base.name)
    return Rendering(path, text)


def _write(renderings: Iterable[Rendering]) -> int:
    for rendering in renderings:
        word = "wrote" if rendering.write() else "unchanged"
        click.echo(f"{word} {shown(rendering.path)}", err=True)
    return EXIT_PASSED


def _check(renderings: Iterable[Rendering]) -> int:
    code = EXIT_PASSED
    for rendering in renderings:
        freshness = rendering.freshness()
        click.echo(f"{freshness.value} {shown(rendering.path)}", err=True)
        if freshness is not Freshness.FRESH:
            code = EXIT_NOT_PASSED
            click.echo(rendering.diff(), nl=False)
    return code
