"""Tests wrong params.toml files: the message names the place and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import TemplateError
from harness.rendering.declarations import read_declaration

INT = 'type = "int"\ndefault = 4\nmeaning = "m"\n'
VARIANT = "[variants.only]\ndefault = true\n"


def declared(tmp_path: Path, text: str, template: str = "demo") -> Path:
    path = tmp_path / template / "params.toml"
    path.parent.mkdir()
    path.write_text(text)
    return path


def with_parameter(body: str, tail: str = VARIANT) -> str:
    return f'problem = "p"\n[parameters.width]\n{body}\n{tail}'


MISTAKES = {
    "no toml": ("problem = [", ["not TOML"]),
    "no problem": (f"[parameters.width]\n{INT}range = [1, 9]\n{VARIANT}", ["lacks problem"]),
    "no parameters": (f'problem = "p"\n{VARIANT}', ["lacks parameters"]),
    "no variants": (f'problem = "p"\n[parameters.width]\n{INT}range = [1, 9]\n', ["lacks variants"]),
    "empty variants": (with_parameter(f"{INT}range = [1, 9]", "[variants]\n"), ["declares no variant"]),
    "unknown table": (
        with_parameter(f"{INT}range = [1, 9]", f"{VARIANT}[constraint]\n"),
        ["unknown key 'constraint'", "'constraints'"],
    ),
    "problem with a slash": (
        with_parameter(f"{INT}range = [1, 9]").replace('"p"', '"../p"'),
        ["'../p'", "letters, digits and underscores"],
    ),
    "unknown key": (with_parameter(f"{INT}rang = [1, 9]"), ["'width'", "'rang'", "'range'"]),
    "no meaning": (with_parameter('type = "int"\ndefault = 4\nrange = [1, 9]'), ["'width'", "lacks meaning"]),
    "empty meaning": (with_parameter(f"{INT}range = [1, 9]").replace('"m"', '" "'), ["meaning", "' '"]),
    "no type": (with_parameter('default = 4\nmeaning = "m"\nrange = [1, 9]'), ["'width'", "lacks type"]),
    "unknown type": (
        with_parameter(f"{INT}range = [1, 9]").replace('"int"', '"integer"'),
        ["'width'", "'integer'", "int, float, bool, str"],
    ),
    "neither choices nor a range": (with_parameter(INT), ["'width'", "neither choices nor a range"]),
    "choices and range": (
        with_parameter(f"{INT}range = [1, 9]\nchoices = [4]"),
        ["'width'", "choices and a range"],
    ),
    "no choices": (with_parameter(f"{INT}choices = []"), ["'width'", "at least one"]),
    "choice of another type": (with_parameter(f'{INT}choices = [4, "8"]'), ["'width'", "'8'", "not of type int"]),
    "bool among ints": (with_parameter(f"{INT}choices = [4, true]"), ["'width'", "True", "not of type int"]),
    "default outside choices": (with_parameter(f"{INT}choices = [1, 2]"), ["'width'", "default 4", "1, 2"]),
    "default outside range": (
        with_parameter(f"{INT}range = [5, 9]"),
        ["'width'", "default 4", "from 5 to 9"],
    ),
    "default no multiple": (
        with_parameter(f"{INT}range = [1, 9]\nmultiple_of = 3"),
        ["'width'", "default 4", "a multiple of 3"],
    ),
    "default of another type": (
        with_parameter('type = "bool"\ndefault = 1\nmeaning = "m"'),
        ["'width'", "default 1", "bool"],
    ),
    "default is a list": (with_parameter(f"{INT}range = [1, 9]").replace("= 4", "= [4]"), ["'width'", "[4]"]),
    "range upside down": (with_parameter(f"{INT}range = [9, 1]"), ["'width'", "[low, high]"]),
    "range of three": (with_parameter(f"{INT}range = [1, 2, 3]"), ["'width'", "[low, high]"]),
    "float range of an int": (with_parameter(f"{INT}range = [0.5, 9]"), ["'width'", "[low, high]"]),
    "multiple of zero": (with_parameter(f"{INT}range = [1, 9]\nmultiple_of = 0"), ["'width'", "multiple_of"]),
    "parameter name": (
        with_parameter(f"{INT}range = [1, 9]").replace("parameters.width", 'parameters."block size"'),
        ["'block size'", "lower-case"],
    ),
    "reserved name": (
        with_parameter(f"{INT}range = [1, 9]").replace("parameters.width", "parameters.default"),
        ["'default'", "reserved"],
    ),
    "variant name": (
        with_parameter(f"{INT}range = [1, 9]", '[variants."../evil"]\n'),
        ["'../evil'", "letters, digits and underscores"],
    ),
    "variant of an unknown parameter": (
        with_parameter(f"{INT}range = [1, 9]", "[variants.only]\nwidht = 4\n"),
        ["variant 'only'", "'widht'", "'width'"],
    ),
    "variant out of range": (
        with_parameter(f"{INT}range = [1, 9]", "[variants.only]\nwidth = 10\n"),
        ["variant 'only'", "'width'", "10", "from 1 to 9"],
    ),
    "default on demand": (
        with_parameter(f"{INT}range = [1, 9]", "[variants.only]\ndefault = true\non_demand = true\n"),
        ["variant 'only'", "on_demand", "remove one"],
    ),
    "variant default not bool": (
        with_parameter(f"{INT}range = [1, 9]", '[variants.only]\ndefault = "yes"\n'),
        ["variant 'only'", "true or false"],
    ),
    "two defaults": (
        with_parameter(f"{INT}range = [1, 9]", f"{VARIANT}[variants.other]\ndefault = true\n"),
        ["only, other", "Keep one"],
    ),
    "constraint broken by the defaults": (
        with_parameter(f"{INT}range = [1, 9]", f'[[constraints]]\nrule = "width > 5"\nmessage = "wide"\n{VARIANT}'),
        ["the defaults", "wide", "width=4"],
    ),
    "constraint broken by a variant": (
        with_parameter(
            f"{INT}range = [1, 9]",
            '[[constraints]]\nrule = "width < 5"\nmessage = "narrow"\n[variants.only]\nwidth = 6\n',
        ),
        ["variant 'only'", "narrow", "width=6"],
    ),
    "constraint without message": (
        with_parameter(f"{INT}range = [1, 9]", f'[[constraints]]\nrule = "width > 1"\n{VARIANT}'),
        ["constraint", "lacks message"],
    ),
    "constraint without names": (
        with_parameter(f"{INT}range = [1, 9]", f'[[constraints]]\nrule = "1 < 2"\nmessage = "m"\n{VARIANT}'),
        ["'1 < 2'", "names no parameter"],
    ),
    "a limit of something else": (
        with_parameter(f"{INT}range = [1, 9]", f"[limits]\nregister = 64\n{VARIANT}"),
        ["limits has an unknown key 'register'", "'registers'"],
    ),
    "a limit that is no expression": (
        with_parameter(f"{INT}range = [1, 9]", f'[limits]\nregisters = "64 *"\n{VARIANT}'),
        ["limits: registers", "is not an expression"],
    ),
    "a limit of an unknown parameter": (
        with_parameter(f"{INT}range = [1, 9]", f'[limits]\nregisters = "65536 // widht"\n{VARIANT}'),
        ["limits: registers", "unknown parameter 'widht'", "'width'"],
    ),
    "a limit below 0": (
        with_parameter(f"{INT}range = [1, 9]", f'[limits]\nspilled_bytes = "0 - width"\n{VARIANT}'),
        ["limits: spilled_bytes", "must be a number from 0 on"],
    ),
    "a limit that is true": (
        with_parameter(f"{INT}range = [1, 9]", f"[limits]\nshared_bytes = true\n{VARIANT}"),
        ["limits: shared_bytes must be a number, or an expression"],
    ),
    "limits as a list": (
        with_parameter(f"{INT}range = [1, 9]", f"[[limits]]\nshared_bytes = 1\n{VARIANT}"),
        ["limits"],
    ),
    "constraints as one table": (
        with_parameter(f"{INT}range = [1, 9]", f'[constraints]\nrule = "width > 1"\nmessage = "m"\n{VARIANT}'),
        ["[[constraints]]"],
    ),
}


@pytest.mark.parametrize(("text", "pieces"), MISTAKES.values(), ids=MISTAKES.keys())
def test_wrong_declaration_is_refused(tmp_path: Path, text: str, pieces: list[str]) -> None:
    path = declared(tmp_path, text)
    with pytest.raises(TemplateError) as refused:
        read_declaration(path)
    for piece in [str(path), *pieces]:
        assert piece in str(refused.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "params.toml"
    with pytest.raises(TemplateError, match="cannot read"):
        read_declaration(path)


def test_template_folder_needs_a_plain_name(tmp_path: Path) -> None:
    path = declared(tmp_path, with_parameter(f"{INT}range = [1, 9]"), template="my template")
    with pytest.raises(TemplateError, match="'my template'"):
        read_declaration(path)


def test_defaults_and_settings_are_merged(tmp_path: Path) -> None:
    declaration = read_declaration(declared(tmp_path, with_parameter(f"{INT}range = [1, 9]")))
    assert declaration.resolve({}) == {"width": 4}
    assert declaration.resolve({"width": 9}) == {"width": 9}
    assert declaration.default_variant().name == "only"


TYPED = """\
problem = "p"
[parameters.count]
type = "int"
default = 1
range = [-5, 5]
meaning = "m"
[parameters.factor]
type = "float"
default = 0.5
range = [0.0, 1.0]
meaning = "m"
[parameters.fast]
type = "bool"
default = false
meaning = "m"
[parameters.mode]
type = "str"
default = "a"
choices = ["a", "b"]
meaning = "m"
[variants.only]
"""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("count=-3", -3),
        ("factor=0.25", 0.25),
        ("factor=1", 1.0),
        ("fast=true", True),
        ("fast=False", False),
        ("mode=b", "b"),
    ],
)
def test_command_line_text_becomes_a_value(tmp_path: Path, text: str, value: object) -> None:
    declaration = read_declaration(declared(tmp_path, TYPED))
    name, _, written = text.partition("=")
    resolved = declaration.resolve(declaration.parse({name: written}))
    assert resolved[name] == value
    assert type(resolved[name]) is type(value)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("count=3.5", ["'count'", "'3.5'", "int from -5 to 5"]),
        ("count=six", ["'count'", "'six'"]),
        ("count=6", ["'count'", "6", "int from -5 to 5"]),
        ("count=", ["'count'", "''"]),
        ("count=1_0", ["'count'", "'1_0'"]),
        ("factor=nan", ["'factor'", "'nan'", "float from 0.0 to 1.0"]),
        ("factor=inf", ["'factor'", "'inf'"]),
        ("fast=1", ["'fast'", "'1'", "bool"]),
        ("mode=c", ["'mode'", "'c'", "one of a, b"]),
        ('mode=a"; evil', ["'mode'", "evil"]),
        ("mood=a", ["no parameter 'mood'", "Did you mean 'mode'?"]),
    ],
)
def test_wrong_text_is_refused(tmp_path: Path, text: str, pieces: list[str]) -> None:
    declaration = read_declaration(declared(tmp_path, TYPED))
    name, _, written = text.partition("=")
    with pytest.raises(TemplateError) as refused:
        declaration.resolve(declaration.parse({name: written}))
    for piece in ["'demo'", *pieces]:
        assert piece in str(refused.value)
