"""The head of a rendered file: what it was rendered from, and a digest that shows any later edit."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.rendering.values import Value, canonical

_HEAD = re.compile(
    r"# Rendered from templates/(?P<folder>[a-z0-9_]+): change that, not this file, and render again\.\n"
    r"# template: (?P<template>[a-z0-9_]+)\n"
    r"# parameters: (?P<parameters>\{[^\n]*\})\n"
    r"# digest: sha256:(?P<digest>[0-9a-f]{64})\n"
)


@dataclass(frozen=True)
class Stamp:
    """What a rendered file says of itself.

    Attributes:
        template: The template's name.
        parameters: The value of every parameter.
        digest: sha256 over template, parameters and body, in hex, as written in the file.
        intact: Whether the digest is that of the file's text: nobody edited it.
    """

    template: str
    parameters: Mapping[str, Value]
    digest: str
    intact: bool


def digest_of(template: str, parameters: Mapping[str, Value], body: str) -> str:
    """The sha256, in hex, over a template's name, its parameters in canonical form, and the rendered body."""
    return hashlib.sha256("\0".join((template, canonical(parameters), body)).encode()).hexdigest()


def stamped(template: str, parameters: Mapping[str, Value], body: str) -> str:
    """The body under its head."""
    return (
        f"# Rendered from templates/{template}: change that, not this file, and render again.\n"
        f"# template: {template}\n"
        f"# parameters: {canonical(parameters)}\n"
        f"# digest: sha256:{digest_of(template, parameters, body)}\n"
        f"{body}"
    )


def parse_stamp(text: str) -> Stamp | None:
    """Read a file's stamp.

    Args:
        text: The whole file.

    Returns:
        The stamp, or None where the file begins with none (hand-written, or its head was damaged).
    """
    head = _HEAD.match(text)
    if head is None:
        return None
    try:
        parameters = json.loads(head["parameters"])
    except json.JSONDecodeError:
        return None
    if not all(isinstance(value, bool | int | float | str) for value in parameters.values()):
        return None
    intact = stamped(head["template"], parameters, text[head.end() :]) == text
    return Stamp(head["template"], parameters, head["digest"], intact)
