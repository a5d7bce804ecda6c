"""A template as a search sees it: its space, its rendered texts, and what they depend on."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import TemplateError
from harness.rendering.parameters import Declaration
from harness.rendering.render_jinja import Renderer
from harness.rendering.render_templates import find_variant_template
from harness.rendering.stamp import stamped
from harness.rendering.values import Value, written
from harness.tuning.space import Point, Space, axes_of, build_space

#: Settings in which the search looks for an effect of each parameter.
LOOKED_AT = 48


@dataclass(frozen=True)
class Searched:
    """A template with the space to search.

    Attributes:
        declaration: The template's declaration.
        renderer: Renders the template.
        space: The valid settings. A parameter that changes nothing has one value.
        start: The settings of the default variant, whether or not they are in the space.
        notes: Remarks for the user about the space.
    """

    declaration: Declaration
    renderer: Renderer
    space: Space
    start: Mapping[str, Value]
    notes: tuple[str, ...]

    def body(self, point: Point) -> str:
        """Returns the rendered text of a setting, without the stamp.

        Raises:
            TemplateError: The template cannot be rendered with this setting.
        """
        return self.renderer.body(self.space.settings(point))

    def text(self, point: Point, body: str) -> str:
        """Returns the solution file of a setting with this body."""
        return stamped(self.declaration.template, self.space.settings(point), body)

    def label(self, settings: Mapping[str, Value]) -> str:
        """Describes a setting by the parameters that differ from the default variant's."""
        words = (f"{name}={written(value)}" for name, value in settings.items() if value != self.start.get(name))
        return " ".join(words) or "default"

    def differences(self, settings: Mapping[str, Value]) -> int:
        """Returns how many parameters differ from the default variant's."""
        return sum(value != self.start.get(name) for name, value in settings.items())

    def first_points(self) -> Iterator[Point]:
        """Yields the settings to begin with: those of the default variant, then those of the others."""
        variants = sorted(self.declaration.variants.values(), key=lambda one: not one.default)
        for settings in (self.start, *(self.declaration.resolve(one.settings) for one in variants)):
            point = self.space.point(settings)
            if point is not None:
                yield point

    def counts(self, name: str, settings: Mapping[str, Value]) -> bool:
        """Returns whether a parameter counts with these settings, by its ``when``."""
        when = self.declaration.parameters[name].when
        return when is None or when.holds(settings, f"{self.declaration.path}: parameter {name!r}: when")


def searched(root: Path, name: str, wanted: Mapping[str, str]) -> Searched:
    """Returns a template with its space.

    Args:
        root: Folder with ``problems`` and ``templates``.
        name: A template, or a problem for the template of its default variant.
        wanted: Values by parameter, separated by commas, that narrow the space.

    Raises:
        TemplateError: There is no such template, parameter or value, or the template is wrong.
        UsageError: No setting is valid, or the space is too large to be tested.
    """
    declaration = find_variant_template(root, name, None)
    variants = list(declaration.variants.values())
    default = next((one for one in variants if one.default), variants[0])
    axes = axes_of(declaration, wanted)
    space = build_space(declaration, axes)
    found = Searched(
        declaration,
        Renderer(root / "templates", declaration),
        space,
        declaration.resolve(default.settings),
        tuple(
            f"{name}={written(value)} is in no valid setting"
            for name in wanted
            for value in axes[name]
            if value not in space.values_of(name)
        ),
    )
    return _without_idle_parameters(found, axes)


def _without_idle_parameters(found: Searched, axes: Mapping[str, tuple[Value, ...]]) -> Searched:
    """Returns the template with one value for each parameter that changes nothing in its text."""
    space, notes, kept = found.space, list(found.notes), dict(axes)
    draw = random.Random(0)
    drawn = (space.at(draw.randrange(space.size)) for _ in range(LOOKED_AT))
    points = list(dict.fromkeys([*found.first_points(), *drawn]))
    for name in space.names:
        used = space.values_of(name)
        effects = {_effect(found, point, name, list(used), draw) for point in points} if len(used) > 1 else set()
        if _Effect.DESPITE_WHEN in effects:
            notes.append(
                f"{name} changes the text where its rule `when` does not hold; the search leaves those settings out"
            )
        if _Effect.NONE in effects and _Effect.COUNTS not in effects:
            default = found.declaration.parameters[name].default
            value = max(used, key=lambda one: (used[one], one == default))
            kept[name] = (value,)
            space = build_space(found.declaration, kept)
            notes.append(
                f"{name} changes nothing in the text ({len(points)} settings tried); the search keeps "
                f"{name}={written(value)}"
            )
    return replace(found, space=space, notes=tuple(notes))


class _Effect(enum.Enum):
    """The effect of another value of a parameter on a setting's text."""

    UNKNOWN = enum.auto()  # the setting cannot be rendered, which is told when it is tried
    NONE = enum.auto()
    COUNTS = enum.auto()
    DESPITE_WHEN = enum.auto()


def _effect(found: Searched, point: Point, name: str, values: list[Value], draw: random.Random) -> _Effect:
    settings = found.space.settings(point)
    others = [value for value in values if value != settings[name]]
    before = _body(found, settings)
    if before is None or not others:
        return _Effect.UNKNOWN
    if before == _body(found, {**settings, name: draw.choice(others)}):
        return _Effect.NONE
    return _Effect.COUNTS if found.counts(name, settings) else _Effect.DESPITE_WHEN


def _body(found: Searched, settings: Mapping[str, Value]) -> str | None:
    """Returns the rendered text of a setting; None if it cannot be rendered."""
    try:
        return found.renderer.body(settings)
    except TemplateError:
        return None
