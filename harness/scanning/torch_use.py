"""The rules about torch: who computes, how exactly, on which stream, and what calls keep."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from harness.aten.operators import heavy_operator
from harness.scanning.hot_path import HotPath
from harness.scanning.program import Program, arguments, children, inside
from harness.scanning.python import Detector, Seen, is_setting

_SETTER_NAMES = """
    set_default_dtype set_default_device set_default_tensor_type set_float32_matmul_precision
    use_deterministic_algorithms set_deterministic_debug_mode set_flush_denormal set_grad_enabled autocast amp.autocast
    cuda.amp.autocast set_autocast_enabled cuda.set_device autograd._enable_record_function
    _C._autograd._enable_record_function
"""
_SETTERS = frozenset(f"torch.{name}" for name in _SETTER_NAMES.split())


def _settings(program: Program, node: ast.Attribute | ast.Call) -> Seen:
    if isinstance(node, ast.Attribute):
        if isinstance(node.ctx, ast.Store) and is_setting(name := program.dotted(node)):
            yield node, name
    else:
        name = program.dotted(node.func)
        last = name.rpartition(".")[2]
        changes = is_setting(name) and (
            last.startswith(("enable", "set_", "preferred", "allow", "sdp_kernel")) or last == "flags"
        )
        if name in _SETTERS or changes:
            yield node, f"{name}(...)"


_SMALL_TYPES = ("float16", "half", "bfloat16")


def _low_precision(program: Program, node: ast.Call) -> Seen:
    method = node.func.attr if isinstance(node.func, ast.Attribute) and not program.dotted(node.func) else ""
    if method in _SMALL_TYPES and not arguments(node):
        yield node, f".{method}()"
    for argument in arguments(node):
        name = program.dotted(argument)
        if name.startswith("torch.") and (name[6:] in _SMALL_TYPES or name.startswith("torch.float8_")):
            yield argument, name


def _streams(program: Program, node: ast.Call) -> Seen:
    name = program.dotted(node.func)
    if name in ("torch.cuda.Stream", "torch.cuda.ExternalStream", "torch.cuda.stream", "torch.cuda.set_stream",
                "torch.Stream", "torch.cuda.StreamContext"):  # fmt: skip
        yield node, f"{name}(...)"


def _graphs(program: Program, node: ast.Call) -> Seen:
    name = program.dotted(node.func)
    if name in ("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.make_graphed_callables"):
        yield node, f"{name}(...)"


_KEYED = ("get", "setdefault", "pop", "__getitem__", "__setitem__", "__contains__")


def _keyed_cache(program: Program, node: ast.AST) -> Seen:
    """Yields keys and comparisons that tell tensors apart by anything but their values."""
    keys: list[ast.AST] = []
    if isinstance(node, ast.Subscript):
        keys = [node.slice]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEYED:
        keys = list(node.args[:1])
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        identities = [one for one in node.value.elts if _identity(program, one)]
        if identities and all(isinstance(target, ast.Name | ast.Attribute) for target in node.targets):
            yield node, f"a key with {_identity(program, identities[0])}"
        return
    elif isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            keys = [] if _sizes(program, node.comparators[0]) else [node.left]
        elif sum(_identity(program, side) not in ("", ".shape") for side in sides) == 1:
            keys = [side for side in sides if _identity(program, side) != ".shape"]
    for key in keys:
        for one in key.elts if isinstance(key, ast.Tuple) else [key]:
            if seen := _identity(program, one):
                yield node, f"a key with {seen}"


def _identity(program: Program, node: ast.AST) -> str:
    """Names the property of a tensor that an expression gives: address, version, identity or shape.

    Returns:
        The property; empty for anything else.
    """
    if isinstance(node, ast.Attribute) and node.attr in ("_version", "shape"):
        return f".{node.attr}"
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("data_ptr", "_cdata"):
            return ".data_ptr()"
        if program.builtin(node.func) == "id" and node.args:
            return "id(...)"
        if program.builtin(node.func) in ("tuple", "str", "hash", "repr") and node.args:
            return _identity(program, node.args[0]) if not isinstance(node.args[0], ast.Call) else ""
    return ""


_FACTORY_NAMES = """
    arange empty eye from_numpy full linspace logspace ones rand randint randn randperm tensor zeros
"""
_FACTORIES = frozenset(f"torch.{name}" for name in _FACTORY_NAMES.split())
_MOVES = ("cuda", "to", "type_as")


def _host_tensors(hot: HotPath) -> Callable[[Program, Any], Seen]:
    """Yields tensors that the host makes for a call, or that a module keeps without registering them."""

    def look(program: Program, node: ast.Call) -> Seen:
        name, parent = program.dotted(node.func), program.parents.get(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "numpy" and not name:
            if node in hot and not (isinstance(node.func.value, ast.Call) and _method(node.func.value) == "cpu"):
                yield node, ".numpy()"
        elif name in _FACTORIES and (node in hot or _is_kept(parent)):
            moved = isinstance(parent, ast.Attribute) and parent.attr in _MOVES
            places = [one.value for one in node.keywords if one.arg in ("device", "out", None)]
            is_host = not any(not isinstance(one, ast.Constant) or one.value != "cpu" for one in places)
            if is_host and not moved and not _is_scalar(name, node):
                yield node, f"{name}(...) on the CPU"

    return look


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _is_kept(parent: ast.AST | None) -> bool:
    """Tells whether a value becomes an attribute of ``self``."""
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    return any(
        isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self" for one in targets
    )


def _is_scalar(name: str, call: ast.Call) -> bool:
    """Tells whether a factory may make a tensor without dimensions, which operators take from any device."""
    first = call.args[0] if call.args else None
    if name == "torch.tensor":
        return not isinstance(first, ast.List | ast.Tuple)
    return isinstance(first, ast.List | ast.Tuple) and not first.elts


_TENSORS = ("torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter", "torch.FloatTensor")
_MODES = ("TorchFunctionMode", "TorchDispatchMode")


def _tensor_subclass(program: Program, node: ast.ClassDef | ast.FunctionDef | ast.Call) -> Seen:
    if isinstance(node, ast.ClassDef):
        for base in node.bases:
            if (name := program.dotted(base)) in _TENSORS or name.rpartition(".")[2] in _MODES:
                yield node, f"class {node.name}({name})"
    elif isinstance(node, ast.FunctionDef):
        if node.name in ("__torch_function__", "__torch_dispatch__"):
            yield node, node.name
    elif isinstance(node.func, ast.Attribute) and node.func.attr in ("_make_subclass", "_make_wrapper_subclass"):
        yield node, f"{node.func.attr}(...)"


_NO_OPERATORS = ("torch.utils", "torch.cuda", "torch.is_", "torch.device", "torch.ops", "torch.classes",
                 "torch.version", "torch.set_", "torch.get_", "torch.backends", "torch.library")  # fmt: skip


def _fallback(program: Program, node: ast.Try) -> Seen:
    if not any(isinstance(one, ast.Call) for one in inside(*node.body)):
        return
    for handler in node.handlers:
        for one in inside(*handler.body):
            if isinstance(one, ast.Call):
                name = program.dotted(one.func)
                is_operator = name.startswith("torch.") and not name.startswith(_NO_OPERATORS)
                if is_operator or name.startswith("torch.ops.aten.") or _module_call(program, one):
                    yield one, f"{name or 'a module of torch'}(...) in an except clause"
                    return


#: Functions that dispatch to heavy operators of other names.
_FUNCTION_NAMES = """
    matmul inner einsum tensordot linear bilinear chain_matmul multi_dot
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv1d_input conv1d_weight conv2d_input
    conv2d_weight conv3d_input conv3d_weight group_norm layer_norm batch_norm instance_norm rms_norm
    softmax log_softmax scaled_dot_product_attention multi_head_attention_forward argsort msort unique cdist pdist
    logcumsumexp cummax cummin lstm gru embedding_bag max_pool2d max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d
"""
_HEAVY_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_METHOD_NAMES = """
    matmul mm addmm bmm baddbmm addbmm addmv mv dot vdot inner addr softmax log_softmax sort argsort msort topk
    kthvalue median nanmedian unique cumsum cumprod logcumsumexp cummax cummin
"""
_HEAVY_METHODS = frozenset(_METHOD_NAMES.split())
_HEAVY_MODULES = (
    "Conv", "LazyConv", "Linear", "Bilinear", "GroupNorm", "LayerNorm", "BatchNorm", "InstanceNorm", "RMSNorm",
    "Softmax", "LogSoftmax", "MultiheadAttention", "LSTM", "GRU", "RNN", "Transformer",
)  # fmt: skip


def _heavy_operators(hot: HotPath) -> Callable[[Program, Any], Seen]:
    def look(program: Program, node: ast.Call | ast.BinOp) -> Seen:
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.MatMult) and node in hot:
                yield node, "@"
            return
        name = program.dotted(node.func)
        if name == "torch.compile" or name.startswith(("torch.jit.", "torch._inductor", "torch._dynamo")):
            yield node, f"{name}(...)"
        elif node not in hot:
            return
        elif name:
            parts = name.split(".")
            own = parts[:2] == ["torch", "ops"] and parts[2:3] not in (["aten"], ["mkl"], ["mkldnn"])
            if parts[0] == "torch" and not own and any(map(_is_heavy, parts[1:])):
                yield node, f"{name}(...)"
        elif module := _module_call(program, node):
            yield node, f"{module}(...)"
        elif isinstance(node.func, ast.Attribute):
            method = node.func.attr
            if method.removesuffix("_") in _HEAVY_METHODS and _is_tensor(program, node):
                yield node, f".{method}(...)"

    return look


def _is_heavy(name: str) -> bool:
    return name in _HEAVY_FUNCTIONS or bool(heavy_operator(name))


def _module_call(program: Program, node: ast.Call) -> str:
    """Returns the heavy torch module that a call of ``self.name`` runs.

    Empty for any other call.
    """
    function = node.func
    while isinstance(function, ast.Subscript):
        function = function.value
    if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)):
        return ""
    if function.value.id != "self":
        return ""
    for value in program.bindings.get(function.attr, ())[:20]:
        made: ast.expr | None = value
        while isinstance(made, ast.Call):
            name = program.dotted(made.func)
            if name.startswith("torch.nn.") and name.rpartition(".")[2].startswith(_HEAVY_MODULES):
                return f"self.{function.attr} ({name})"
            if name in ("torch.nn.Sequential", "torch.nn.ModuleList") and made.args:
                inner = [one for one in made.args if isinstance(one, ast.Call)]
                names = [program.dotted(one.func) for one in inner]
                heavy = [one for one in names if one.rpartition(".")[2].startswith(_HEAVY_MODULES)]
                return f"self.{function.attr} ({heavy[0]})" if heavy else ""
            made = made.func.value if isinstance(made.func, ast.Attribute) else None
    return ""


def _is_tensor(program: Program, node: ast.Call) -> bool:
    """Tells whether a method may be a tensor's.

    It is not if the receiver is a library that the file built, or if the statement drops the result
    of a method that is not in place: then it is the sort of a list.
    """
    receiver = node.func
    attributes: list[str] = []
    while isinstance(receiver, ast.Attribute | ast.Call | ast.Subscript):
        if isinstance(receiver, ast.Attribute):
            attributes.append(receiver.attr)
            receiver = receiver.value
        else:
            receiver = receiver.func if isinstance(receiver, ast.Call) else receiver.value
    if not isinstance(receiver, ast.Name):
        return False
    if receiver.id == "self":
        return any(one in ("weight", "bias", "T", "mT", "t", "transpose", "view", "reshape") for one in attributes[1:])
    is_in_place = isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_")
    if isinstance(program.parents.get(node), ast.Expr) and not is_in_place:
        return False
    return not any(_is_global(program, value) for value in program.bindings.get(receiver.id, ())[:20])


def _is_global(program: Program, value: ast.AST) -> bool:
    """Tells whether an assigned value stands outside functions, or is a library."""
    if isinstance(value, ast.Call) and program.dotted(value.func).rpartition(".")[2] in ("load", "load_inline"):
        return True
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return not any(isinstance(one, functions) for one in _nearest(program, value))


def _nearest(program: Program, node: ast.AST) -> Iterator[ast.AST]:
    for count, one in enumerate(program.above(node)):
        if count > 200:
            return
        yield one


_AUTOGRAD = ("torch.autograd.grad", "torch.autograd.backward", "torch.enable_grad", "torch.autograd.enable_grad",
             "torch.func.grad", "torch.func.vjp", "torch.func.jvp", "torch.autograd.functional.vjp",
             "torch.autograd.functional.jvp")  # fmt: skip


def _nested_autograd(hot: HotPath) -> Callable[[Program, Any], Seen]:
    def look(program: Program, node: ast.Call) -> Seen:
        if node in hot:
            name = program.dotted(node.func)
            if name in _AUTOGRAD:
                yield node, f"{name}(...)"
                return
            # A library's own function of that name returns gradients.
            is_statement = isinstance(program.parents.get(node), ast.Expr)
            if is_statement and not name and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
                yield node, ".backward(...)"

    return look


def _requires_grad(hot: HotPath) -> Callable[[Program, Any], Seen]:
    def look(program: Program, node: ast.Call | ast.Attribute) -> Seen:
        if node not in hot:
            return
        if isinstance(node, ast.Attribute):
            if node.attr == "requires_grad" and isinstance(node.ctx, ast.Store):
                yield node, ".requires_grad = ..."
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
            yield node, ".requires_grad_(...)"

    return look


_LEAST_SIZE = 32


def _fixed_shape(program: Program, node: ast.If | ast.IfExp | ast.Match) -> Seen:
    if isinstance(node, ast.If) and all(isinstance(one, ast.Raise) for one in node.body) and not node.orelse:
        return
    test = node.subject if isinstance(node, ast.Match) else node.test
    if isinstance(node, ast.Match):
        if _is_shape(program, test):
            yield node, "match on .shape"
        return
    waiting: list[ast.AST] = [test]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.Compare):
            sides = [one.left, *one.comparators]
            is_equality = isinstance(one.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn)
            if is_equality and any(_is_shape(program, side) for side in sides):
                if any(_sizes(program, side) for side in sides):
                    yield one, "a shape and fixed sizes"
            elif is_equality and any(map(_is_extent, sides)) and any(map(_is_size, sides)):
                yield one, "an extent and a fixed size"
        else:
            waiting.extend(children(one))


def _is_shape(program: Program, node: ast.AST) -> bool:
    """Tells whether an expression is a shape: ``x.shape``, ``x.size()``, ``tuple(x.shape)``."""
    if isinstance(node, ast.Call) and program.builtin(node.func) in ("tuple", "list") and node.args:
        node = node.args[0]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "size" and not node.args
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _is_extent(node: ast.AST) -> bool:
    """Tells whether an expression is one size: ``x.shape[0]``, ``x.size(0)``, ``x.numel()``."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "numel" or (node.func.attr == "size" and bool(node.args))
    return False


def _sizes(program: Program, node: ast.AST, depth: int = 0) -> bool:
    """Tells whether an expression is a literal list of numbers, or of such lists."""
    if depth > 3:
        return False
    if isinstance(node, ast.Call) and node.args and program.dotted(node.func) == "torch.Size":
        node = node.args[0]
    if isinstance(node, ast.Name):
        values = program.bindings.get(node.id, ())
        return len(values) == 1 and not isinstance(values[0], ast.Name) and _sizes(program, values[0], depth + 1)
    if not isinstance(node, ast.Tuple | ast.List | ast.Set) or not node.elts:
        return False
    return all(_is_number(one) or _sizes(program, one, depth + 1) for one in node.elts)


def _is_size(node: ast.AST) -> bool:
    """Tells whether an expression is a fixed size, too large for a rank or a vector width."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(isinstance(one, ast.Constant) and _is_size(one) for one in node.elts)
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value >= _LEAST_SIZE


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def detectors(hot: HotPath) -> tuple[Detector, ...]:
    """Returns the rules about torch for a program's forward and backward code."""
    return (
        Detector("torch-settings", (ast.Attribute, ast.Call), _settings),
        Detector("low-precision", (ast.Call,), _low_precision),
        Detector("heavy-operator", (ast.Call, ast.BinOp), _heavy_operators(hot)),
        Detector("nested-autograd", (ast.Call,), _nested_autograd(hot)),
        Detector("requires-grad", (ast.Call, ast.Attribute), _requires_grad(hot)),
        Detector("fallback", (ast.Try,), _fallback),
        Detector("fixed-shape", (ast.If, ast.IfExp, ast.Match), _fixed_shape),
        Detector("keyed-cache", (ast.Subscript, ast.Call, ast.Assign, ast.Compare), _keyed_cache),
        Detector("host-tensor", (ast.Call,), _host_tensors(hot)),
        Detector("tensor-subclass", (ast.ClassDef, ast.FunctionDef, ast.Call), _tensor_subclass),
        Detector("streams", (ast.Call,), _streams),
        Detector("graphs", (ast.Call,), _graphs),
    )
