"""Models a template's declaration: its problem, parameters, constraints and variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import TemplateError, suggestion
from harness.records.kernels import KernelLimits
from harness.rendering.constraints import Constraint, number
from harness.rendering.values import Value, has_type, parsed


@dataclass(frozen=True)
class Parameter:
    """A parameter of a template.

    Attributes:
        name: Name in the template and on the command line.
        type: One of ``int``, ``float``, ``bool``, ``str``.
        default: Value that counts if the user chooses none.
        meaning: One line of explanation.
        choices: All allowed values, or None.
        low: Smallest allowed number, or None.
        high: Largest allowed number, or None.
        multiple_of: Number of which an int must be a multiple, or None.
        when: Rule about other parameters; where it does not hold, this parameter changes nothing.
            None if the parameter always counts.
    """

    name: str
    type: str
    default: Value
    meaning: str
    choices: tuple[Value, ...] | None = None
    low: int | float | None = None
    high: int | float | None = None
    multiple_of: int | None = None
    when: Constraint | None = None

    def allowed(self) -> str:
        """Describes the allowed values in words."""
        if self.choices is not None:
            return f"{self.type}, one of {', '.join(str(choice) for choice in self.choices)}"
        words = self.type
        if self.low is not None:
            words += f" from {self.low} to {self.high}"
        if self.multiple_of is not None:
            words += f", a multiple of {self.multiple_of}"
        return words

    def permits(self, value: object) -> bool:
        """Returns whether a value has the type and lies within choices and range."""
        if not has_type(value, self.type):
            return False
        if self.choices is not None:
            return any(value == choice and type(value) is type(choice) for choice in self.choices)
        if isinstance(value, int | float) and self.low is not None and self.high is not None:
            if not self.low <= value <= self.high:
                return False
            return self.multiple_of is None or value % self.multiple_of == 0
        return self.multiple_of is None or (isinstance(value, int) and value % self.multiple_of == 0)


@dataclass(frozen=True)
class TemplateVariant:
    """A named group of settings that becomes a solution file.

    Attributes:
        name: Stem of the file.
        settings: Parameters that differ from their defaults.
        default: Whether this is the problem's default solution.
        on_demand: Whether the file is only rendered when a user names the variant.
    """

    name: str
    settings: Mapping[str, Value]
    default: bool
    on_demand: bool


@dataclass(frozen=True)
class Declaration:
    """The content of a template's ``params.toml``.

    Attributes:
        template: Name of the template.
        path: Path of the file, for messages.
        problem: Stem of the problem that the template solves.
        parameters: Parameters by name.
        constraints: Rules between parameters.
        limits: The most that nvcc may give each kernel, as expressions of parameters by the fields of
            ``KernelLimits``.
        variants: Variants by name, in the order of the file.
    """

    template: str
    path: Path
    problem: str
    parameters: Mapping[str, Parameter]
    constraints: tuple[Constraint, ...]
    variants: Mapping[str, TemplateVariant]
    limits: Mapping[str, str] = field(default_factory=dict)

    def parse(self, assignments: Mapping[str, str]) -> dict[str, Value]:
        """Converts texts from the command line into values of the declared types.

        Raises:
            TemplateError: A parameter is unknown, or a text is no value of its type.
        """
        settings: dict[str, Value] = {}
        for name, text in assignments.items():
            parameter = self._parameter(name)
            value = parsed(text, parameter.type)
            if value is None:
                raise self._not_allowed(parameter, text)
            settings[name] = value
        return settings

    def check(self, settings: Mapping[str, Value]) -> None:
        """Checks each setting by itself, without the constraints.

        Raises:
            TemplateError: A setting is unknown, has the wrong type or is out of range.
        """
        for name, value in settings.items():
            parameter = self._parameter(name)
            if not parameter.permits(value):
                raise self._not_allowed(parameter, value)

    def resolve(self, settings: Mapping[str, Value]) -> dict[str, Value]:
        """Returns the value of every parameter: the defaults, overridden by the settings.

        Raises:
            TemplateError: A setting is unknown, has the wrong type, is out of range, or breaks a
                constraint.
        """
        self.check(settings)
        resolved = {name: settings.get(name, parameter.default) for name, parameter in self.parameters.items()}
        for constraint in self.constraints:
            if not constraint.holds(resolved, str(self.path)):
                named = sorted(constraint.names(str(self.path)) & resolved.keys())
                values = ", ".join(f"{name}={resolved[name]}" for name in named)
                raise TemplateError(
                    f"template {self.template!r}: {constraint.message} (rule {constraint.rule!r}, got {values})."
                )
        return resolved

    def kernel_limits(self, settings: Mapping[str, Value]) -> KernelLimits:
        """Returns the most that nvcc may give each kernel of a setting.

        Args:
            settings: The value of every parameter.

        Raises:
            TemplateError: A limit is malformed, or no number from 0 on.
        """
        where = f"{self.path}: limits"
        return KernelLimits(**{name: number(rule, settings, f"{where}: {name}") for name, rule in self.limits.items()})

    def variant(self, name: str) -> TemplateVariant:
        """Returns the variant of that name.

        Raises:
            TemplateError: There is no such variant.
        """
        if name not in self.variants:
            raise TemplateError(f"template {self.template!r} has no variant {name!r}.{suggestion(name, self.variants)}")
        return self.variants[name]

    def default_variant(self) -> TemplateVariant:
        """Returns the variant with ``default = true``, or the only variant.

        Raises:
            TemplateError: There are several variants and none is the default.
        """
        for variant in self.variants.values():
            if variant.default or len(self.variants) == 1:
                return variant
        names = ", ".join(self.variants)
        raise TemplateError(f"template {self.template!r} has no default variant; name one of: {names}.")

    def _parameter(self, name: str) -> Parameter:
        if name not in self.parameters:
            raise TemplateError(
                f"template {self.template!r} has no parameter {name!r}.{suggestion(name, self.parameters)}"
            )
        return self.parameters[name]

    def _not_allowed(self, parameter: Parameter, value: object) -> TemplateError:
        return TemplateError(
            f"template {self.template!r}: parameter {parameter.name!r} cannot be {value!r}; "
            f"allowed: {parameter.allowed()}."
        )
