"""Writes and reads the head of a rendered file, whose digest reveals a later edit."""

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
    """The head of a rendered file.

    Attributes:
        template: Name of the template.
        parameters: The value of every parameter.
        digest: sha256 over template, parameters and body, in hex, as written in the file.
        intact: Whether the digest matches the file's text, that is, nobody edited the file.
    """

    template: str
    parameters: Mapping[str, Value]
    digest: str
    intact: bool


def digest_of(template: str, parameters: Mapping[str, Value], body: str) -> str:
    """Returns the sha256, in hex, over a template's name, its parameters and the rendered body.

    The parameters enter in their canonical form.
    """
    return hashlib.sha256("\0".join((template, canonical(parameters), body)).encode()).hexdigest()


def stamped(template: str, parameters: Mapping[str, Value], body: str) -> str:
    """Returns the body with the stamp above it."""
    return (
        f"# Rendered from templates/{template}: change that, not this file, and render again.\n"
        f"# template: {template}\n"
        f"# parameters: {canonical(parameters)}\n"
        f"# digest: sha256:{digest_of(template, parameters, body)}\n"
        f"{body}"
    )


def parse_stamp(text: str) -> Stamp | None:
    """Reads the stamp of a file.

    Args:
        text: The whole file.

    Returns:
        The stamp, or None if the file does not begin with a valid one, as a hand-written file does
        not.
    """
    head = _HEAD.match(text)
    if head is None:
        return None
    try:
        parameters = json.loads(head["parameters"])
        if not all(isinstance(value, bool | int | float | str) for value in parameters.values()):
            return None
        intact = stamped(head["template"], parameters, text[head.end() :]) == text
    except (ValueError, RecursionError):  # no JSON, or a number that is none
        return None
    return Stamp(head["template"], parameters, head["digest"], intact)
