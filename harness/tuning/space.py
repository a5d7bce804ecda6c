"""The space of a search: every valid setting of a template's parameters, without rendering any.

Parameters that no rule ties together are independent. The space keeps the valid combinations of each
group of tied parameters, and never the product of the groups. It can therefore count, draw and number
settings of a space that is too large to list.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.errors import UsageError
from harness.rendering.constraints import Constraint
from harness.rendering.parameters import Declaration, Parameter
from harness.rendering.values import Value

#: A setting: a value for each parameter, in the order of the space's names.
Point = tuple[Value, ...]

#: A range with more values than this is searched at powers of two.
MOST_VALUES = 64
#: Values of a float's range.
FLOAT_VALUES = 9
#: Combinations of one group of tied parameters that the space tests.
MOST_TESTED = 400_000


@dataclass(frozen=True)
class Part:
    """A group of parameters that rules tie together.

    Attributes:
        positions: Positions of the parameters in a point.
        combinations: All valid combinations of their values.
    """

    positions: tuple[int, ...]
    combinations: tuple[Point, ...]

    @cached_property
    def known(self) -> frozenset[Point]:
        """The combinations as a set."""
        return frozenset(self.combinations)

    def of(self, point: Point) -> Point:
        """Returns the part's values in a point."""
        return tuple(point[position] for position in self.positions)


@dataclass(frozen=True)
class Space:
    """All valid settings.

    Attributes:
        names: Names of the parameters.
        axes: Values of each parameter, in order.
        parts: Groups of tied parameters; each parameter is in one of them.
    """

    names: tuple[str, ...]
    axes: tuple[tuple[Value, ...], ...]
    parts: tuple[Part, ...]

    @cached_property
    def size(self) -> int:
        """Number of valid settings."""
        return math.prod(len(part.combinations) for part in self.parts)

    @cached_property
    def ranks(self) -> tuple[Mapping[Value, int], ...]:
        """The position of each value on its axis."""
        return tuple({value: rank for rank, value in enumerate(axis)} for axis in self.axes)

    def at(self, index: int) -> Point:
        """Returns the setting with a number from 0 to ``size - 1``."""
        values: dict[int, Value] = {}
        for part in reversed(self.parts):
            index, which = divmod(index, len(part.combinations))
            values.update(zip(part.positions, part.combinations[which], strict=True))
        return tuple(values[position] for position in range(len(self.names)))

    def values_of(self, name: str) -> Counter[Value]:
        """Returns the values that a parameter has in valid settings, with the number of combinations of each."""
        position = self.names.index(name)
        part = next(one for one in self.parts if position in one.positions)
        place = part.positions.index(position)
        return Counter(one[place] for one in part.combinations)

    def __contains__(self, point: Point) -> bool:
        return all(part.of(point) in part.known for part in self.parts)

    def settings(self, point: Point) -> dict[str, Value]:
        """Returns a setting by the names of its parameters."""
        return dict(zip(self.names, point, strict=True))

    def point(self, settings: Mapping[str, Value]) -> Point | None:
        """Returns the setting with these values; None if it is not in the space."""
        if settings.keys() != set(self.names):
            return None
        point = tuple(settings[name] for name in self.names)
        alike = all(
            isinstance(one, bool) is isinstance(axis[0], bool) for one, axis in zip(point, self.axes, strict=True)
        )
        return point if alike and point in self else None

    def neighbours(self, point: Point) -> list[Point]:
        """Returns the valid settings that differ from a setting in one parameter.

        If a changed value needs other changes to be valid, the neighbour is the valid setting with
        that value that has the fewest.
        """
        found: dict[Point, None] = {}
        for part in self.parts:
            here = part.of(point)
            for place, position in enumerate(part.positions):
                for value in self.axes[position]:
                    if value != here[place]:
                        there = self._nearest(part, here, place, value)
                        if there is not None:
                            changed = dict(zip(part.positions, there, strict=True))
                            found[tuple(changed.get(at, one) for at, one in enumerate(point))] = None
        return list(found)

    def _nearest(self, part: Part, here: Point, place: int, value: Value) -> Point | None:
        direct = (*here[:place], value, *here[place + 1 :])
        if direct in part.known:
            return direct
        key = (part.positions[place], value)
        if key not in self._by_value:
            self._by_value[key] = [one for one in part.combinations if one[place] == value]
        ranks = [self.ranks[position] for position in part.positions]

        def distance(there: Point) -> tuple[int, int]:
            steps = [abs(rank[a] - rank[b]) for rank, a, b in zip(ranks, here, there, strict=True)]
            return sum(map(bool, steps)), sum(steps)

        return min(self._by_value[key], key=distance, default=None)

    @cached_property
    def _by_value(self) -> dict[tuple[int, Value], list[Point]]:
        return {}


def listed_space(names: Sequence[str], points: Iterable[Point]) -> Space:
    """Returns the space of exactly these settings, such as those of a recorded search."""
    known = tuple(dict.fromkeys(points))
    axes = tuple(_in_order({point[at] for point in known}) for at in range(len(names)))
    return Space(tuple(names), axes, (Part(tuple(range(len(names))), known),))


def _in_order(values: set[Value]) -> tuple[Value, ...]:
    return tuple(sorted(values, key=lambda value: (isinstance(value, str), value)))


def axes_of(declaration: Declaration, wanted: Mapping[str, str]) -> dict[str, tuple[Value, ...]]:
    """Returns the values to search for each parameter.

    Args:
        declaration: The template's parameters.
        wanted: The user's values by parameter, separated by commas; parameters without any keep all
            values that the declaration allows.

    Raises:
        TemplateError: A parameter is unknown, or does not allow a value.
    """
    chosen: dict[str, tuple[Value, ...]] = {}
    for name, text in wanted.items():
        values = [declaration.parse({name: one.strip()})[name] for one in text.split(",")]
        for value in values:
            declaration.check({name: value})
        chosen[name] = tuple(dict.fromkeys(values))
    return {name: chosen.get(name) or allowed_values(one) for name, one in declaration.parameters.items()}


def allowed_values(parameter: Parameter) -> tuple[Value, ...]:
    """Returns the values of a parameter that a search tries.

    These are all choices, and all values of a short range. Of a long range they are the powers of
    two, both ends and the default; of a float's range, evenly spaced values and the default.
    """
    if parameter.type == "bool":
        return tuple(dict.fromkeys(parameter.choices or (False, True)))
    if parameter.choices is not None:
        return tuple(dict.fromkeys(parameter.choices))
    low, high, default = parameter.low, parameter.high, parameter.default
    assert low is not None
    assert high is not None
    assert not isinstance(default, str)
    if parameter.type == "float":
        steps = {low + (high - low) * step / (FLOAT_VALUES - 1) for step in range(FLOAT_VALUES)}
        return _in_order({float(one) for one in {*steps, default} if low <= one <= high})
    step = parameter.multiple_of or 1
    first, last = -(-int(low) // step) * step, int(high) // step * step
    if (last - first) // step < MOST_VALUES:
        return tuple(range(first, last + 1, step))
    powers = {sign * step * 2**power for power in range(64) for sign in (-1, 1)}
    kept = {one for one in powers if first <= one <= last}
    return _in_order({first, last, int(default), *kept, *({0} if first <= 0 <= last else ())})


@dataclass(frozen=True)
class _Rule:
    """A rule of the space: a constraint, or that a parameter keeps one value where it does not count."""

    names: frozenset[str]
    constraint: Constraint
    where: str
    idle: tuple[str, Value] | None = None

    def holds(self, settings: Mapping[str, Value]) -> bool:
        if self.idle is None:
            return self.constraint.holds(settings, self.where)
        name, value = self.idle
        return settings[name] == value or self.constraint.holds(settings, self.where)


def build_space(declaration: Declaration, axes: Mapping[str, tuple[Value, ...]]) -> Space:
    """Returns the valid settings of a template with these values; nothing is rendered.

    Raises:
        UsageError: No setting is valid, or too many combinations would have to be tested.
        TemplateError: A rule is wrong.
    """
    rules = list(_rules(declaration, axes))
    names = tuple(declaration.parameters)
    parts = []
    for group in _groups(names, rules):
        own = [rule for rule in rules if rule.names <= set(group)]
        combinations = tuple(_combinations(group, axes, own))
        if not combinations:
            raise UsageError(_why_empty(declaration, group, axes, own))
        parts.append(Part(tuple(names.index(name) for name in group), combinations))
    return Space(names, tuple(axes[name] for name in names), tuple(parts))


def _rules(declaration: Declaration, axes: Mapping[str, tuple[Value, ...]]) -> Iterator[_Rule]:
    where = str(declaration.path)
    known = declaration.parameters.keys()
    for constraint in declaration.constraints:
        yield _Rule(constraint.names(where) & known, constraint, where)
    for name, parameter in declaration.parameters.items():
        if parameter.when is not None:
            idle = parameter.default if parameter.default in axes[name] else axes[name][0]
            about = f"{where}: parameter {name!r}: when"
            yield _Rule((parameter.when.names(where) & known) | {name}, parameter.when, about, (name, idle))


def _groups(names: Sequence[str], rules: Sequence[_Rule]) -> list[list[str]]:
    """Returns the groups of parameters that rules tie together, in the order of the names."""
    group_of = {name: {name} for name in names}
    for rule in rules:
        merged = set().union(*(group_of[name] for name in rule.names))
        group_of.update(dict.fromkeys(merged, merged))
    groups: list[list[str]] = []
    for name in names:
        if not any(name in group for group in groups):
            groups.append([one for one in names if one in group_of[name]])
    return groups


def _combinations(
    group: Sequence[str], axes: Mapping[str, tuple[Value, ...]], rules: Sequence[_Rule]
) -> Iterator[Point]:
    """Yields the valid combinations of a group's values.

    Each rule is tested as soon as all of its parameters have a value.
    """
    order = _test_order(group, axes, rules)
    ready = [
        [rule for rule in rules if name in rule.names and rule.names <= set(order[: at + 1])]
        for at, name in enumerate(order)
    ]
    settings: dict[str, Value] = {}
    tested = 0

    def extended(depth: int) -> Iterator[Point]:
        nonlocal tested
        if depth == len(order):
            yield tuple(settings[name] for name in group)
            return
        for value in axes[order[depth]]:
            settings[order[depth]] = value
            tested += 1
            if tested > MOST_TESTED:
                raise UsageError(
                    f"the parameters {', '.join(group)} have more combinations than can be tested ({MOST_TESTED:,}); "
                    f"name fewer values, such as -p {order[0]}={axes[order[0]][0]}"
                )
            if all(rule.holds(settings) for rule in ready[depth]):
                yield from extended(depth + 1)
        del settings[order[depth]]

    yield from extended(0)


def _test_order(group: Sequence[str], axes: Mapping[str, tuple[Value, ...]], rules: Sequence[_Rule]) -> list[str]:
    """Returns the group's parameters, those first that complete a rule with the fewest combinations."""
    order: list[str] = []
    left = list(rules)
    while left:
        missing = [rule.names - set(order) for rule in left]
        cheapest = min(range(len(left)), key=lambda at: math.prod(len(axes[name]) for name in missing[at]))
        order += sorted(missing[cheapest], key=list(group).index)
        left.pop(cheapest)
    return order + [name for name in group if name not in order]


def _why_empty(
    declaration: Declaration, group: Sequence[str], axes: Mapping[str, tuple[Value, ...]], rules: Sequence[_Rule]
) -> str:
    values = {name: f"{name}={','.join(map(str, axes[name]))}" for name in group}
    for rule in rules:
        if next(_combinations(sorted(rule.names), axes, [rule]), None) is None:
            told = "; ".join(values[name] for name in sorted(rule.names))
            return (
                f"no setting of template {declaration.template!r} is valid: the rule {rule.constraint.rule!r} "
                f"({rule.constraint.message}) excludes every one with {told}"
            )
    return (
        f"no setting of template {declaration.template!r} is valid: the rules about {', '.join(group)} together "
        f"exclude every one with {'; '.join(values.values())}; name more values with -p"
    )
