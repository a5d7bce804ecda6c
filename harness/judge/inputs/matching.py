"""Matches the tensors of a candidate's state to those of the reference.

It matches by equal names, else by the solution's own ``PARAMETER_MAP`` (candidate's name to
reference's name), else by shape. By shape it matches in order, if each shape occurs equally often
on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.errors import suggestion
from harness.system.text import shortened
from harness.wire.tensors import StateTensor

#: The longest name of a parameter or buffer: every command for a trial contains it.
MAX_NAME_CHARACTERS = 1000


class MatchError(Exception):
    """The candidate's state cannot be matched. The message names what is missing and what is there."""


def match_state(
    reference: Sequence[StateTensor], candidate: Sequence[StateTensor], declared: Mapping[str, str]
) -> dict[str, str]:
    """Map the reference's names to the candidate's: every parameter, and the buffers that match.

    Args:
        reference: The reference's state before its parameters are redrawn.
        candidate: The candidate's state as the worker reports it. It may hold more than the
            reference does.
        declared: The solution's ``PARAMETER_MAP``, candidate's name to reference's name.

    Raises:
        MatchError: A parameter of the reference has no counterpart, or only an ambiguous one.
    """
    theirs = {tensor.name: tensor for tensor in candidate}
    ours = {tensor.name: tensor for tensor in reference}
    pairs = _declared_pairs(ours, theirs, declared)
    for tensor in reference:
        if tensor.name not in pairs and tensor.name in theirs and tensor.name not in pairs.values():
            _check_shapes(tensor, theirs[tensor.name])
            pairs[tensor.name] = tensor.name
    missing = [tensor for tensor in reference if tensor.name not in pairs]
    free = [tensor for tensor in candidate if tensor.name not in pairs.values()]
    for key in dict.fromkeys((tensor.is_parameter, tensor.shape) for tensor in missing):
        wanted = [tensor for tensor in missing if (tensor.is_parameter, tensor.shape) == key]
        offered = [tensor for tensor in free if (tensor.is_parameter, tensor.shape) == key]
        if len(wanted) == len(offered):
            pairs.update(_pair_up(wanted, offered))
        elif key[0]:
            raise MatchError(_explain(wanted, offered, free))
    if long := next((name for name in pairs.values() if len(name) > MAX_NAME_CHARACTERS), ""):
        start = shortened(long, 60)
        raise MatchError(
            f"ModelNew's {start} has a name of {len(long):,} characters; the limit is {MAX_NAME_CHARACTERS}"
        )
    return pairs


def _declared_pairs(
    ours: Mapping[str, StateTensor], theirs: Mapping[str, StateTensor], declared: Mapping[str, str]
) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for mine, reference_name in declared.items():
        if mine not in theirs:
            raise MatchError(f"PARAMETER_MAP names {mine!r}, which ModelNew does not have.{suggestion(mine, theirs)}")
        if reference_name not in ours:
            hint = suggestion(reference_name, ours)
            raise MatchError(f"PARAMETER_MAP maps {mine!r} to {reference_name!r}, which Model does not have.{hint}")
        _check_shapes(ours[reference_name], theirs[mine])
        pairs[reference_name] = mine
    return pairs


def _check_shapes(reference: StateTensor, candidate: StateTensor) -> None:
    if reference.shape != candidate.shape or reference.dtype != candidate.dtype:
        raise MatchError(
            f"{candidate.name} of ModelNew has shape {list(candidate.shape)} and dtype {candidate.dtype}, but "
            f"{reference.name} of Model has {list(reference.shape)} and {reference.dtype}"
        )


def _pair_up(wanted: Sequence[StateTensor], offered: Sequence[StateTensor]) -> dict[str, str]:
    """Pair equally many tensors of one shape by distinct initial fills, or else in order."""
    fills = {tensor.fill: tensor.name for tensor in offered}
    if len(fills) == len(offered) and {tensor.fill for tensor in wanted} == set(fills):
        return {tensor.name: fills[tensor.fill] for tensor in wanted}
    return {mine.name: theirs.name for mine, theirs in zip(wanted, offered, strict=True)}


def _explain(wanted: Sequence[StateTensor], offered: Sequence[StateTensor], free: Sequence[StateTensor]) -> str:
    names = ", ".join(f"{tensor.name} {list(tensor.shape)}" for tensor in wanted)
    there = ", ".join(f"{tensor.name} {list(tensor.shape)}" for tensor in free) or "none"
    why = "several match" if len(offered) > len(wanted) else "not enough have its shape"
    remedy = (
        "Register it with nn.Parameter under the reference's name, or declare PARAMETER_MAP = "
        "{'name in ModelNew': 'name in Model'}."
    )
    buffers = [tensor.name for tensor in free if not tensor.is_parameter and tensor.shape == wanted[0].shape]
    if buffers and len(offered) < len(wanted):
        remedy = f"{buffers[0]} of ModelNew has that shape, but is a buffer: register it with nn.Parameter."
    return f"no parameter of ModelNew matches the reference's {names} ({why}; unmatched in ModelNew: {there}). {remedy}"
