"""Draws what a trial needs: seeds from a secret, a model with parameters that matter, inputs.

Seeds derive from a secret that is drawn for each batch and recorded with the result. So a run can
be repeated, but not anticipated.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
import math
import random
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from harness.errors import ProblemError
from harness.judge.inputs.copying import attribute_of
from harness.project.problems import Problem, ProblemModule, failure
from harness.wire.host_generators import host_states, seed_host, set_host_states
from harness.wire.state import CONSTRUCTION_SEED, constructed_there, describe_state, tensors_aside
from harness.wire.tensors import StateTensor
from harness.wire.variations import is_differentiable

AFFINE_SPREAD = 0.5
CPU = torch.device("cpu")
#: Number of elements of each tensor in a draw's mark. ``get_inputs`` draws others everywhere or
#: nowhere.
MARKED_ELEMENTS = 1 << 8


def derive_seed(secret: str, *parts: object) -> int:
    """Derive a 63-bit seed: sha256 of the secret and the parts that name the purpose."""
    text = "\0".join([secret, *(str(part) for part in parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@dataclass(frozen=True)
class Draw:
    """One trial's model and inputs, in the problem's own dtypes.

    Attributes:
        model: The reference, with its constant parameters redrawn.
        inputs: The arguments of ``forward``: tensors and plain values.
        state: The model's parameters and buffers as constructed, before the redraw.
        bits: Mantissa bits to which inputs and parameters were cut; None if they are as drawn.
    """

    model: torch.nn.Module
    inputs: list[Any]
    state: list[StateTensor]
    bits: int | None = None

    def differentiable_inputs(self) -> list[int]:
        """Return the positions of the floating tensors among the inputs."""
        return [position for position, value in enumerate(self.inputs) if is_differentiable(value)]

    @property
    def batch(self) -> int | None:
        """The length of dimension 0 of the first tensor input; None if no input has a batch."""
        for value in self.inputs:
            if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] > 1:
                return value.shape[0]
        return None

    def input_names(self) -> dict[int, str]:
        """Name the differentiable inputs by position, after the forward's arguments if possible."""
        taken = {name for name, _ in self.model.named_parameters()}
        try:
            arguments = list(inspect.signature(self.model.forward).parameters)
        except (TypeError, ValueError):
            arguments = []
        names = {}
        for position in self.differentiable_inputs():
            name = arguments[position] if position < len(arguments) else ""
            names[position] = name if name and name not in taken else f"inputs[{position}]"
        return names

    def mark(self) -> bytes:
        """Digest some elements of every tensor and all other values; different draws differ in it."""
        digest = hashlib.sha256()
        for value in (*self.inputs, *self.model.parameters(), *self.model.buffers()):
            if isinstance(value, torch.Tensor):
                flat = value.detach().reshape(-1)
                some = flat[:: max(1, flat.numel() // MARKED_ELEMENTS)].contiguous()
                digest.update(f"{tuple(value.shape)}{value.dtype}".encode())
                digest.update(bytes(some.view(torch.uint8).tolist()))
            else:
                digest.update(repr(value).encode())
        return digest.digest()


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block under this seed of torch's, Python's and NumPy's generators, and restore their states."""
    host = host_states()
    used = generators()
    states = [generator.get_state() for generator in used]
    for generator in used:
        generator.manual_seed(seed)
    seed_host(seed)
    try:
        yield
    finally:
        set_host_states(host)
        for generator, state in zip(used, states, strict=True):
            generator.set_state(state)


def generators() -> list[torch.Generator]:
    """Return the default generators of the CPU and of a GPU in use.

    ``torch.manual_seed`` would also queue a call for every missing backend, at a millisecond each.
    """
    found = [torch.default_generator]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        found.append(torch.cuda.default_generators[torch.cuda.current_device()])
    return found


def init_args(problem: Problem, module: ProblemModule, seed: int) -> list[Any]:
    """Return the constructor's arguments from ``get_init_inputs``.

    Raises:
        ProblemError: The function raised, or returned something else than a list or tuple.
    """
    with seeded(seed):
        try:
            args = module.get_init_inputs()
        except Exception as error:
            raise failure(problem, "get_init_inputs()", error) from error
    if not isinstance(args, list | tuple):
        raise ProblemError(f"{problem.path}: get_init_inputs() returned {type(args).__name__}, not a list")
    return list(args)


def draw(
    problem: Problem,
    module: ProblemModule,
    args: list[Any],
    seed: int,
    device: torch.device = CPU,
    *,
    as_constructed: bool = False,
) -> Draw:
    """Draw a trial on a device.

    Args:
        problem: The problem, for messages.
        module: The problem's body, run under the case.
        args: The constructor's arguments.
        seed: The trial's seed.
        device: The device of the model and the inputs, both of which are drawn there.
        as_constructed: Whether constant and fixed parameters stay as they are.

    Raises:
        ProblemError: The constructor or ``get_inputs`` raised or returned the wrong thing.
    """
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]  # seeded() sets the GPU's generator only then
    seeds = Seeds(frozenset(), False) if as_constructed else _seeds(problem, module, args, device)
    with seeded(seed):
        model = _constructed_on(problem, module, args, device)
        if not isinstance(model, torch.nn.Module):
            raise ProblemError(f"{problem.path}: Model is not a torch.nn.Module")
        if any(torch.nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
            raise ProblemError(
                f"{problem.path}: Model has lazy parameters, whose shapes are unknown before the first forward: "
                "construct layers with their sizes (nn.Linear(11, 7), not nn.LazyLinear(7))"
            )
        if name := next((name for name, one in model.named_parameters() if one.is_complex()), None):
            raise ProblemError(
                f"{problem.path}: the parameter {name} is complex, but the harness judges real parameters alone: keep "
                "its real and imaginary parts in a real one, and call torch.view_as_complex in forward"
            )
        if name := next((name for name, one in model.named_parameters() if _has_hook(one)), None):
            raise ProblemError(
                f"{problem.path}: the parameter {name} has a hook, which a copy of Model loses, and the harness "
                "evaluates copies: change the gradient in an autograd.Function, or with a hook of a module"
            )
        if name := attribute_of(model, (torch.Generator, random.Random)):
            raise ProblemError(
                f"{problem.path}: Model keeps a random generator in self.{name}, whose state no candidate can follow; "
                "draw from torch's default generator, which the judge seeds, and declare RANDOMNESS = 'same-generator'"
            )
        state = describe_state(model)
        if seeds.decide_more or tensors_aside(model):
            drawn = dict((*model.named_parameters(), *model.named_buffers()))
            with seeded(CONSTRUCTION_SEED):
                model = _constructed(problem, module, args)
            with torch.no_grad():
                for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                    if name in {one.name for one in state}:
                        tensor.copy_(drawn[name])
        model = model.to(device)
        if not as_constructed:
            _redraw_fixed_parameters(model, seeds.fixed)
            redraw_constant_parameters(model)
    return Draw(model, draw_inputs(problem, module, derive_seed(str(seed), "inputs"), device), state)


def _has_hook(parameter: torch.nn.Parameter) -> bool:
    """Return whether ``register_hook`` or ``register_post_accumulate_grad_hook`` was called."""
    return any(getattr(parameter, name, None) for name in ("_backward_hooks", "_post_accumulate_grad_hooks"))


def _constructed_on(problem: Problem, module: ProblemModule, args: list[Any], device: torch.device) -> Any:
    """Construct the model on its device if it can be constructed there, else on the CPU."""
    if device.type == "cpu":
        return _constructed(problem, module, args)
    states = [generator.get_state() for generator in generators()], host_states()
    model = constructed_there(device, lambda: _constructed(problem, module, args))
    if model is not None:
        return model
    for generator, state in zip(generators(), states[0], strict=True):
        generator.set_state(state)
    set_host_states(states[1])
    return _constructed(problem, module, args)


def _constructed(problem: Problem, module: ProblemModule, args: list[Any]) -> Any:
    try:
        return module.model(*copy.deepcopy(args))
    except Exception as error:
        told = failure(problem, "Model(*get_init_inputs())", error)
        if [type(one) for one in args] == [list, dict]:
            words = "get_init_inputs() returned a list and a dict, which are two arguments"
            raise ProblemError(f"{told}; {words}; return [*list, *dict.values()]") from error
        raise told from error


def draw_inputs(problem: Problem, module: ProblemModule, seed: int, device: torch.device = CPU) -> list[Any]:
    """Draw the inputs of one call on their device.

    Raises:
        ProblemError: ``get_inputs`` raised, or returned something else than a list or tuple.
    """
    with seeded(seed), device if device.type == "cuda" else contextlib.nullcontext():
        try:
            inputs = module.get_inputs()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise failure(problem, "get_inputs()", error) from error
    if not isinstance(inputs, list | tuple):
        raise ProblemError(f"{problem.path}: get_inputs() returned {type(inputs).__name__}, not a list")
    for number, value in enumerate(inputs):
        if words := _not_passable(value):
            raise ProblemError(f"{problem.path}: input {number} of get_inputs() is {words}")
    return [value.to(device) if isinstance(value, torch.Tensor) else value for value in inputs]


def _not_passable(value: Any) -> str:
    """Say why an input cannot cross to a candidate as a tensor; an empty text if it can."""
    if not isinstance(value, torch.Tensor):
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
        if any(isinstance(one, torch.Tensor) or _not_passable(one) for one in inner):
            return f"a {type(value).__name__} that holds tensors; pass each tensor as an input of its own"
        return ""
    if value.is_nested:
        return "a nested tensor, but candidates get dense ones alone; pass its values padded, and their lengths"
    if value.is_meta:
        return "a tensor on the device meta, which has no values; draw it on the CPU"
    if value.layout is not torch.strided or value.is_quantized:
        kind = "quantized" if value.is_quantized else str(value.layout).removeprefix("torch.")
        return f"a {kind} tensor, but candidates get dense ones alone; build it in Model's forward"
    return ""


#: An RMS from 2^-3 to 2^3 is near 1; of float32's powers of two those up to 2^120 are used.
NEAR_ONE, MOST_EXPONENT = 3, 120


#: A normal number is smaller than this with a probability of about 1/8.
SMALL_NORMAL = 0.157
#: The fewest elements of an output some of whose cotangent is zero, and the fewest samples.
FEWEST_ELEMENTS, FEWEST_SAMPLES = 8, 4


def cotangents(
    outputs: Sequence[torch.Tensor], seed: int, alone: int | None = None, has_zeros: bool = False
) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Yield the cotangents of a trial: standard normal, ones, and the outputs if they are finite.

    An output that is far from 1 in size is multiplied by a power of two, which rounds nothing. A gradient's error is
    seen against its largest size under any cotangent: a large output would hide errors under the other two, and one of
    several outputs those of the others.

    Args:
        outputs: The outputs at which backward begins.
        seed: Seed of the normal ones.
        alone: The only output whose cotangents are not zero; None for all of them.
        has_zeros: Whether the normal ones are zero where they would be small, and in one sample, as
            behind a loss with a mask.

    Yields:
        Name, and one tensor per output with its shape, dtype and device.
    """
    generators = {device: torch.Generator(device).manual_seed(seed) for device in {one.device for one in outputs}}
    normal = [torch.randn(one.shape, generator=generators[one.device], device=one.device) for one in outputs]
    normal = [
        (_with_zeros(one, seed) if has_zeros else one).to(to.dtype) for one, to in zip(normal, outputs, strict=True)
    ]
    yield "normal", only(alone, normal)
    yield "ones", only(alone, constant(outputs, 1.0))
    if all(map(_is_finite, outputs)):
        exponents = [near_one(square_sum(one), one.numel()) for one in outputs]
        yield "output", only(alone, scaled([one.detach() for one in outputs], exponents))


def _with_zeros(normal: torch.Tensor, seed: int) -> torch.Tensor:
    """Set the elements near zero, and all of one sample, to zero; the RMS hardly changes."""
    if normal.numel() >= FEWEST_ELEMENTS:
        normal.masked_fill_(normal.abs() < SMALL_NORMAL, 0.0)
        if normal.dim() > 1 and len(normal) >= FEWEST_SAMPLES:
            normal[seed % len(normal)] = 0.0
    return normal


def constant(outputs: Sequence[torch.Tensor], value: float) -> list[torch.Tensor]:
    """Return a cotangent whose elements are all one element, expanded to the outputs' shapes (stride 0)."""
    return [one.new_full((), value).expand_as(one) for one in outputs]


def only(alone: int | None, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors, with zeros in place of all but one; None keeps all."""
    if alone is None:
        return tensors
    return [one if place == alone else one.new_zeros(()).expand_as(one) for place, one in enumerate(tensors)]


def square_sum(output: torch.Tensor) -> float:
    """Return the sum of an output's squares; 0 for an output of integers."""
    if not output.is_floating_point():
        return 0.0
    return float(torch.linalg.vector_norm(output.detach(), dtype=torch.float64)) ** 2


def near_one(squares: float, elements: int) -> int:
    """Return the exponent of the power of two that brings an output near 1; 0 where none is needed.

    Args:
        squares: The sum of the output's squares.
        elements: Number of its elements.
    """
    if not (0.0 < squares < math.inf):
        return 0
    exponent = round(math.log2(squares / elements) / 2)
    return 0 if abs(exponent) <= NEAR_ONE else max(-MOST_EXPONENT, min(MOST_EXPONENT, -exponent))


def scaled(tensors: Sequence[torch.Tensor], exponents: Sequence[int]) -> list[torch.Tensor]:
    """Return each tensor times its power of two."""
    return [one * 2.0**exponent if exponent else one for one, exponent in zip(tensors, exponents, strict=True)]


@dataclass(frozen=True)
class OwnOutput:
    """The form of a cotangent that is the exact output itself, as ``cotangents`` forms it of a candidate's.

    Attributes:
        dtypes: The dtypes in which a candidate returns the outputs.
        exponents: Exponents of the powers of two that bring the outputs near 1.
        alone: The only output that is its own cotangent, the others' being zero; None for all of them.
    """

    dtypes: Sequence[torch.dtype]
    exponents: Sequence[int]
    alone: int | None = None

    def of(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the cotangent for exact outputs, or for a piece of them."""
        converted = [output.detach().to(dtype) for output, dtype in zip(outputs, self.dtypes, strict=True)]
        return only(self.alone, scaled(converted, self.exponents))


def _is_finite(tensor: torch.Tensor) -> bool:
    """Return whether all elements are finite, in one pass and without a tensor of that size."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    return all(bool(end.isfinite()) for end in tensor.detach().aminmax())


class Seeds(NamedTuple):
    """Tells which parts of a newly constructed model depend on the seed.

    Attributes:
        fixed: Names of parameters that every seed constructs alike, such as an identity matrix.
        decide_more: Whether the seed also decides plain attributes, such as a list of a drawn order.
    """

    fixed: frozenset[str]
    decide_more: bool


#: What seeds decide in each problem's body.
_known: weakref.WeakKeyDictionary[ProblemModule, Seeds] = weakref.WeakKeyDictionary()


def _seeds(problem: Problem, module: ProblemModule, args: list[Any], device: torch.device) -> Seeds:
    """Find what the seed decides: construct the model under two seeds, once for each body of a problem."""
    if module not in _known:
        found = []
        for seed in (CONSTRUCTION_SEED, CONSTRUCTION_SEED + 1):
            with seeded(seed):
                model = _constructed_on(problem, module, args, device)
            found.append((_fingerprints(model), _plain_attributes(model)))
        (first, plain), (second, other) = found
        fixed = frozenset(name for name, one in first.items() if second.get(name) == one)
        _known[module] = Seeds(fixed, plain != other)
    return _known[module]


def _plain_attributes(model: Any) -> list[str | bytes]:
    """Return what modules keep in numbers, texts, lists, tuples and dicts of them, and NumPy's arrays."""
    modules = model.modules() if isinstance(model, torch.nn.Module) else ()
    values = [value for one in modules for value in vars(one).values() if _is_plain(value)]
    return [value.tobytes() if _is_numpy(value) else repr(value) for value in values]


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(one) for pair in value.items() for one in pair)
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str) or _is_numpy(value)


def _is_numpy(value: Any) -> bool:
    """Return whether a value is an array or a number of NumPy, which the harness does not import."""
    return type(value).__module__ == "numpy" and hasattr(value, "tobytes")


def _fingerprints(model: Any) -> dict[str, tuple[float, float]]:
    """Return the sum and the norm of each floating parameter."""
    named = model.named_parameters() if isinstance(model, torch.nn.Module) else ()
    with torch.no_grad():
        return {
            name: (float(one.sum(dtype=torch.float64)), float(torch.linalg.vector_norm(one, dtype=torch.float64)))
            for name, one in named
            if not torch.nn.parameter.is_lazy(one) and one.is_floating_point() and one.numel()
        }


def _redraw_fixed_parameters(model: torch.nn.Module, names: frozenset[str]) -> None:
    """Redraw in place the named parameters whose elements differ from each other.

    Otherwise a candidate that has their values in its text, and ignores those that it is given,
    would pass. Elements keep their signs and change by up to a half; zeros become normal numbers of
    half the RMS.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in names or bool((parameter == parameter.flatten()[0]).all()):
                continue
            rms = float(torch.linalg.vector_norm(parameter, dtype=torch.float64)) / math.sqrt(parameter.numel())
            if not math.isfinite(rms):
                continue
            scaled = parameter * (1 + AFFINE_SPREAD * (2 * torch.rand_like(parameter) - 1))
            fresh = torch.randn_like(parameter) * (AFFINE_SPREAD * rms)
            parameter.copy_(torch.where(parameter == 0, fresh, scaled))


def redraw_constant_parameters(model: torch.nn.Module) -> None:
    """Redraw in place every floating parameter whose elements are all equal (an affine's ones).

    Otherwise a candidate that ignores such a parameter, or indexes it wrongly, would pass. The new
    values are the old one plus a normal draw of spread 0.5. A single number (a temperature, a
    slope) keeps its sign instead and changes by up to a half.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if (
                parameter.is_floating_point()
                and parameter.numel()
                and bool((parameter == parameter.flatten()[0]).all())
            ):
                if parameter.numel() == 1 and bool(parameter != 0):
                    parameter.mul_(1 + AFFINE_SPREAD * (2 * torch.rand_like(parameter) - 1))
                else:
                    parameter.add_(torch.randn_like(parameter), alpha=AFFINE_SPREAD)
