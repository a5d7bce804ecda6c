"""Copies models so that nothing in a copy refers to the original.

``copy.deepcopy`` shares functions between a model and its copy. A function that closes over a
module of the model (``self.mlp = lambda x: linear(x)``) would still compute with the original's
parameters. This module gives the copy its own function, whose closure and defaults hold the copies.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch

from harness.errors import ProblemError
from harness.system.text import one_line


def copied(model: torch.nn.Module, dtype: torch.dtype | None = None) -> torch.nn.Module:
    """Copy a model with everything that it owns, functions included.

    This also copies and converts modules and tensors that only a closure or a container holds. What
    several places share in the model, its copy shares too.

    Args:
        model: The model; it does not change.
        dtype: The dtype of the copy's floating tensors, complex ones in proportion. None for the
            model's own.

    Raises:
        ProblemError: The model cannot be copied.
    """
    copies = _Copies()
    try:
        result = copies.of(model)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # Foreign modules may raise anything.
        raise ProblemError(
            f"copy.deepcopy cannot copy Model ({one_line(str(error))}), and the harness evaluates copies of it: keep "
            "no lock, open file or generator in it, and no tensor that is computed from parameters, as "
            "torch.nn.utils.weight_norm does (torch.nn.utils.parametrizations.weight_norm can be copied)"
        ) from error
    if not isinstance(result, torch.nn.Module):
        raise TypeError(f"a copy of the model is a {type(result).__name__}")
    copies.rebind_functions()
    if dtype is not None:
        for tensor in copies.tensors():
            # In place, since closures and lists may hold the tensor, too.
            tensor.data = _converted(tensor.data, dtype)
        # Recurrent layers keep their weights in one block of memory, which this makes anew.
        result._apply(lambda tensor: _converted(tensor, dtype))  # type: ignore[no-untyped-call]
    return result


def holds_functions(model: torch.nn.Module) -> bool:
    """Return whether modules hold functions, so that ``copy.deepcopy`` may share the model's weights."""
    return attribute_of(model, (types.FunctionType, types.MethodType, functools.partial)) is not None


def attribute_of(model: torch.nn.Module, kinds: tuple[type, ...]) -> str | None:
    """Return the name of a module's attribute that is, or contains, an object of these types; None if none is."""
    for module in model.modules():
        for name, value in vars(module).items():
            items = (
                value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
            )
            if any(isinstance(item, kinds) for item in items):
                return name
    return None


class _Copies:
    """Copies of one model's objects, and of the functions among them."""

    def __init__(self) -> None:
        self._memo: dict[int, Any] = {}
        self._functions: dict[int, types.FunctionType] = {}
        # An id stands for an object only while the object lives.
        self._originals: list[types.FunctionType] = []

    def of(self, value: Any) -> Any:
        """Return the copy of an object, made only once."""
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            function = self.of(value.__func__)
            owner = self.of(value.__self__)
            same = function is value.__func__ and owner is value.__self__
            return value if same else types.MethodType(function, owner)
        if isinstance(value, tuple):
            items = [self.of(item) for item in value]
            same = all(item is before for item, before in zip(items, value, strict=True))
            return value if same else tuple.__new__(type(value), items)
        return value if isinstance(value, types.ModuleType) else copy.deepcopy(value, self._memo)

    def rebind_functions(self) -> None:
        """Replace functions in all copied objects that refer to originals."""
        done: set[int] = set()
        while fresh := {key: value for key, value in self._found() if key not in done}:
            done |= fresh.keys()
            # A closure in it may hold further objects, which the loop copies meanwhile.
            for value in fresh.values():
                self._rebind_in(value)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Iterate over all copied tensors, each once."""
        found = {id(value): value for _, value in self._found() if isinstance(value, torch.Tensor)}
        return iter(found.values())

    def _found(self) -> list[tuple[int, Any]]:
        """List all copies so far, without the entry in which ``deepcopy`` keeps originals alive."""
        return [(key, value) for key, value in self._memo.items() if key != id(self._memo)]

    def _rebind_in(self, value: Any) -> None:
        if isinstance(value, list):
            value[:] = [self._rebound(item) for item in value]
        elif isinstance(value, dict):
            _replace(value, self._rebound)
        elif isinstance(value, functools.partial):
            parts = [self._rebound(part) for part in (value.func, value.args, value.keywords)]
            value.__setstate__((*parts, vars(value)))  # type: ignore[attr-defined]
        if isinstance(attributes := getattr(value, "__dict__", None), dict):
            _replace(attributes, self._rebound)

    def _rebound(self, value: Any) -> Any:
        """Replace the functions in a part of a copied object, which may still be the original's."""
        if isinstance(value, tuple):
            items = [self._rebound(item) for item in value]
            same = all(item is before for item, before in zip(items, value, strict=True))
            return value if same else tuple.__new__(type(value), items)
        if isinstance(value, types.MethodType):
            function = self._rebound(value.__func__)
            return value if function is value.__func__ else types.MethodType(function, value.__self__)
        return self._function(value) if isinstance(value, types.FunctionType) else value

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        """Copy a function with its closure and defaults; return it as it is if none changed."""
        if id(function) in self._functions:
            return self._functions[id(function)]
        cells = function.__closure__ or ()
        own = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, None, tuple(types.CellType() for _ in cells)
        )
        self._originals.append(function)
        # Register it before copying its closure, which may hold the function itself.
        self._functions[id(function)] = own
        self._functions[id(own)] = own
        self._originals.append(own)
        changes = False
        for before, after in zip(cells, own.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # The cell is empty.
                after.cell_contents = self._captured(before.cell_contents)
                changes |= after.cell_contents is not before.cell_contents and after.cell_contents is not own
        for name in ("__defaults__", "__kwdefaults__"):
            before_all = getattr(function, name)
            setattr(own, name, self._captured(before_all))
            changes |= not _alike(getattr(own, name), before_all)
        if not changes:
            self._functions[id(function)] = function
            return function
        own.__dict__.update(function.__dict__)
        own.__qualname__, own.__module__, own.__doc__ = function.__qualname__, function.__module__, function.__doc__
        own.__annotations__ = function.__annotations__
        return own

    def _captured(self, value: Any) -> Any:
        """Copy what a function captures; return the object itself if it cannot be copied (a lock)."""
        known = set(self._memo)
        try:
            return self.of(value)
        except Exception:
            for key in self._memo.keys() - known - {id(self._memo)}:
                del self._memo[key]
            return value


def _replace(values: dict[Any, Any], rebound: Any) -> None:
    for key, value in list(values.items()):
        replaced = rebound(value)
        if replaced is not value:
            values[key] = replaced


def _alike(first: Any, second: Any) -> bool:
    """Return whether two functions' defaults hold the same objects."""
    if isinstance(first, dict) and isinstance(second, dict):
        return all(first[name] is second[name] for name in second)
    return first is second


def _converted(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if tensor.is_floating_point():
        return tensor.to(dtype)
    return tensor.to(dtype.to_complex()) if tensor.is_complex() else tensor
