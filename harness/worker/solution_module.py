"""Imports a solution and reads what it declares."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from harness.system.files import StrangeEncoding, declared_encoding, read_source
from harness.wire.values import encode_plain

MODULE_NAME = "solution"


class ContractError(Exception):
    """The error for a solution that breaks the contract; the message says what is missing."""


def import_solution(path: str) -> ModuleType:
    """Imports a solution file.

    Raises:
        ContractError: The file defines no ``ModelNew``, has a malformed ``PARAMETER_MAP``, or is
            not plain text.
    """
    try:
        declared_encoding(read_source(Path(path)))
    except StrangeEncoding as error:
        raise ContractError(str(error)) from None
    except SyntaxError:
        pass  # the import below raises it with the line
    # The explicit loader accepts any file extension.
    loader = importlib.machinery.SourceFileLoader(MODULE_NAME, path)
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path, loader=loader)
    if spec is None or spec.loader is None:
        raise ContractError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    model = getattr(module, "ModelNew", None)
    if not (isinstance(model, type) and issubclass(model, torch.nn.Module)):
        raise ContractError("the solution defines no class ModelNew(torch.nn.Module)")
    parameter_map(module)
    return module


def parameter_map(module: ModuleType) -> dict[str, str]:
    """Returns the solution's ``PARAMETER_MAP``, or an empty dict if it has none.

    Raises:
        ContractError: The map does not map strings to strings.
    """
    declared = getattr(module, "PARAMETER_MAP", {})
    good = isinstance(declared, dict) and all(isinstance(part, str) for pair in declared.items() for part in pair)
    if not good:
        raise ContractError("PARAMETER_MAP must map names in ModelNew to names in Model, both strings")
    return dict(declared)


def copies_usual_args(module: ModuleType, usual: str) -> bool:
    """Returns whether the solution's ``get_init_inputs`` only repeats the problem's, perhaps as plain numbers.

    Args:
        module: The solution's module.
        usual: What the problem's function returns without a case's constants, encoded; empty if
            that is unknown.
    """
    try:
        return bool(usual) and encode_plain(list(module.get_init_inputs())) == usual
    except (TypeError, ValueError):  # arguments that cannot be encoded, such as tensors
        return False


def own_init_args(module: ModuleType, constants: dict[str, Any]) -> list[Any]:
    """Calls the solution's own ``get_init_inputs`` with the case's constants set in its module.

    The function restores the constants afterwards.

    Raises:
        ContractError: ``get_init_inputs`` returned neither a list nor a tuple.
    """
    before = {name: getattr(module, name) for name in constants.keys() & vars(module).keys()}
    vars(module).update({name: constants[name] for name in before})
    try:
        args = module.get_init_inputs()
    finally:
        vars(module).update(before)
    if not isinstance(args, list | tuple):
        raise ContractError(f"get_init_inputs() of the solution returned {type(args).__name__}, not a list")
    return list(args)
