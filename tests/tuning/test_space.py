"""Tests the space: what is valid, how much it is, and what is said where nothing is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import TemplateError, UsageError
from harness.rendering.declarations import read_declaration
from harness.rendering.parameters import Declaration
from harness.rendering.render_templates import find_template, template_names
from harness.tuning.space import allowed_values, axes_of, build_space, listed_space
from harness.tuning.template import searched
from tests.tuning.conftest import PARAMS

REPOSITORY = Path(__file__).resolve().parents[2]


def declared(root: Path) -> Declaration:
    return find_template(root, "tanh")


def test_the_space_has_exactly_the_settings_that_the_rules_allow(make_project: Callable[..., Path]) -> None:
    declaration = declared(make_project())
    axes = axes_of(declaration, {})
    space = build_space(declaration, axes)
    by_hand = {
        values
        for values in itertools.product(*axes.values())
        if values[1] * values[2] <= 64 and (values[0] == "right" or values[1] == 2)
    }
    listed = [space.at(number) for number in range(space.size)]
    assert len(listed) == space.size == len(by_hand)
    assert set(listed) == by_hand
    assert all(point in space for point in listed)
    assert ("wrong", 4, 8, False) not in space
    assert space.point(space.settings(listed[0])) == listed[0]
    assert space.point({**space.settings(listed[0]), "idle": 0}) is None  # 0 is not false
    assert space.point({"kind": "right"}) is None


def test_a_neighbour_differs_in_one_parameter_or_in_as_few_as_the_rules_allow(
    make_project: Callable[..., Path],
) -> None:
    declaration = declared(make_project())
    space = build_space(declaration, axes_of(declaration, {}))
    here = ("right", 4, 16, False)
    found = space.neighbours(here)
    assert all(point in space for point in found)
    assert ("right", 4, 8, False) in found
    assert ("wrong", 2, 16, False) in found  # step keeps its default where it does not count
    assert ("right", 2, 32, False) in found  # 4 * 32 is too much
    assert here not in found
    assert len(found) == len(set(found)) == 4 + 2 + 3 + 1


def test_values_narrow_the_space_and_unused_ones_are_known(make_project: Callable[..., Path]) -> None:
    declaration = declared(make_project())
    space = build_space(declaration, axes_of(declaration, {"kind": "right", "step": "4,4", "width": "8, 32"}))
    assert space.size == 2
    assert space.values_of("width") == {8: 1}
    # A parameter keeps one of the values that the user names, where it does not count.
    assert build_space(declaration, axes_of(declaration, {"kind": "wrong", "step": "1,4", "width": "8"})).size == 2


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"stepp": "1"}, "no parameter 'stepp'. Did you mean 'step'"),
        ({"step": "3"}, "cannot be 3; allowed: int, one of 1, 2, 4"),
        ({"step": ""}, "cannot be ''"),
        ({"step": "1,,2"}, "cannot be ''"),
        ({"step": "9" * 5000}, "cannot be"),
        ({"step": "1.5"}, "cannot be '1.5'"),
        ({"width": "12"}, "a multiple of 8"),
        ({"idle": "maybe"}, "cannot be 'maybe'"),
        ({"kind": "right; rm -rf"}, "cannot be 'right; rm -rf'"),
    ],
)
def test_a_wrong_value_is_refused(make_project: Callable[..., Path], wanted: dict[str, str], message: str) -> None:
    with pytest.raises(TemplateError, match=message):
        axes_of(declared(make_project()), wanted)


def test_an_empty_space_names_the_rule_that_empties_it(make_project: Callable[..., Path]) -> None:
    declaration = declared(make_project())
    with pytest.raises(UsageError, match=r"'step \* width <= 64' \(a tile has at most 64 floats\) excludes every one"):
        build_space(declaration, axes_of(declaration, {"kind": "right", "step": "4", "width": "32"}))
    more = PARAMS + '\n[[constraints]]\nrule = "width >= 16 or step == 2"\nmessage = "no"\n'
    declaration = declared(make_project(more))
    with pytest.raises(UsageError, match=r"together exclude every one with .*name more values"):
        build_space(declaration, axes_of(declaration, {"kind": "right", "step": "4", "width": "8,32"}))


def test_a_rule_that_cannot_be_computed_is_an_error_of_the_template(make_project: Callable[..., Path]) -> None:
    declaration = declared(
        make_project(PARAMS + '\n[[constraints]]\nrule = "64 % (width - 16) < 99"\nmessage = "no"\n')
    )
    with pytest.raises(TemplateError, match="cannot be computed"):
        build_space(declaration, axes_of(declaration, {}))


@pytest.mark.parametrize("when", ["step > 1", "1 < 2", "kind ==", "import os", "nothing == 1"])
def test_a_wrong_when_is_an_error_of_the_template(make_project: Callable[..., Path], when: str) -> None:
    root = make_project(PARAMS.replace("kind == 'right'", when))
    with pytest.raises(TemplateError, match="when"):
        read_declaration(root / "templates" / "tanh" / "params.toml")


def test_long_ranges_are_searched_at_powers_of_two(make_project: Callable[..., Path]) -> None:
    wide = PARAMS.replace("range = [8, 32]\nmultiple_of = 8", "range = [1, 65536]").replace(
        "default = 8", "default = 1056"
    )
    wide = wide.replace("step * width <= 64", "width > 0")
    parameter = declared(make_project(wide)).parameters["width"]
    assert allowed_values(parameter) == (
        *(2**power for power in range(11)),
        1056,
        *(2**power for power in range(11, 17)),
    )


def test_too_many_combinations_are_refused_and_a_large_space_is_counted(
    make_project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.tuning.space.MOST_TESTED", 10_000)
    names = [f"p{number}" for number in range(12)]
    tables = "".join(
        f'\n[parameters.{name}]\ntype = "int"\ndefault = 1\nchoices = [1, 2, 3, 4, 5, 6, 7, 8]\nmeaning = "m"\n'
        for name in names
    )
    params = f'problem = "tanh"\n{tables}\n[variants.tanh]\ndefault = true\n'
    declaration = declared(make_project(params))
    assert build_space(declaration, axes_of(declaration, {})).size == 8**12
    tied = params + f'\n[[constraints]]\nrule = "{" + ".join(names)} > 0"\nmessage = "m"\n'
    declaration = declared(make_project(tied))
    with pytest.raises(UsageError, match="more combinations than can be tested"):
        build_space(declaration, axes_of(declaration, {}))


def test_a_listed_space_has_its_settings_and_no_other() -> None:
    space = listed_space(["a", "b"], [(1, "x"), (2, "y"), (1, "x")])
    assert (space.size, space.axes) == (2, ((1, 2), ("x", "y")))
    assert (1, "y") not in space
    assert space.neighbours((1, "x")) == [(2, "y")]


@pytest.mark.parametrize("name", template_names(REPOSITORY))
def test_each_parameter_of_a_template_counts_exactly_where_it_says(name: str) -> None:
    found = searched(REPOSITORY, name, {})
    assert found.notes == ()
    assert next(found.first_points()) == found.space.point(found.start)


def test_a_parameter_that_changes_nothing_is_told_and_kept_at_one_value(make_project: Callable[..., Path]) -> None:
    found = searched(make_project(), "tanh", {})
    assert [note for note in found.notes if "idle" in note] == list(found.notes)
    assert "the search keeps idle=false" in found.notes[0]
    assert all(found.space.at(number)[3] is False for number in range(found.space.size))


def test_of_two_that_change_nothing_and_exclude_each_other_s_values_one_setting_remains(
    make_project: Callable[..., Path],
) -> None:
    params = PARAMS.replace("step * width <= 64", "step != width // 8 and step + width // 8 == 5")
    params = params.replace("default = 8", "default = 24").replace("when = \"kind == 'right'\"\n", "")
    found = searched(
        make_project(
            params.replace("width = 32", "width = 24"),
            'A = "{{ kind }}"\n{# #}{% if step and width and idle %}{% endif %}',
        ),
        "tanh",
        {},
    )
    assert [note.partition(" ")[0] for note in found.notes] == ["step", "idle"]  # then width has one value
    assert found.space.size == 5


def test_a_parameter_that_counts_where_its_rule_does_not_hold_is_told(make_project: Callable[..., Path]) -> None:
    solution = 'A = "{{ kind }} {{ step }} {{ width }} {{ idle }}"\n'
    found = searched(make_project(solution=solution), "tanh", {})
    assert any(note.startswith("step changes the text where its rule `when` does not hold") for note in found.notes)
