"""Makes "cuda" mean the emulated device in a solution's Python; the tensors are CPU tensors.

The module replaces torch's entry points where Python finds them. A torch mode would not do: it
belongs to one thread and is off inside every function it intercepts. So custom backwards and hooks
would see the bare CPU again.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.utils._device
from torch._library.custom_ops import CustomOpDef
from torch._subclasses.meta_utils import MetaTensorDescriber
from torch.amp.autocast_mode import autocast as autocast_class
from torch.jit import _builtins
from torch.nn.utils import rnn

from harness.emulator import autocast, cuda_build, cuda_module

_FACTORIES = (
    "arange",
    "as_tensor",
    "asarray",
    "bartlett_window",
    "blackman_window",
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "eye",
    "frombuffer",
    "full",
    "full_like",
    "hamming_window",
    "hann_window",
    "kaiser_window",
    "linspace",
    "load",
    "logspace",
    "normal",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "range",
    "scalar_tensor",
    "sparse_bsc_tensor",
    "sparse_bsr_tensor",
    "sparse_compressed_tensor",
    "sparse_coo_tensor",
    "sparse_csc_tensor",
    "sparse_csr_tensor",
    "tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
    "zeros_like",
)
_METHODS = (
    "new_tensor",
    "new_empty",
    "new_empty_strided",
    "new_zeros",
    "new_ones",
    "new_full",
    "new",
)

_Patch = tuple[object, str, object]


#: Factories that take no tensor, and make one where ``device`` says.
_MAKERS = frozenset(name for name in _FACTORIES if not name.endswith("_like")) - {"load", "normal", "frombuffer"}


@dataclass
class _Place:
    """The type of device that emulated tensors really lie on: ``cpu``, or ``meta`` for a rehearsal."""

    type: str = "cpu"


_place = _Place()


def emulated_device() -> torch.device:
    """Returns the device that every tensor reports: ``cuda:0``."""
    return torch.device("cuda", 0)


@contextmanager
def rehearsed_cuda() -> Iterator[None]:
    """Makes "cuda" a device whose tensors have shapes and no values, as ``emulated_cuda`` does.

    New tensors are meta tensors: they take no memory, and no operator on them takes time.
    """
    _place.type = "meta"
    try:
        with emulated_cuda():
            yield
    finally:
        _place.type = "cpu"


@contextmanager
def emulated_cuda() -> Iterator[None]:
    """Makes "cuda" the emulated device for the whole process while the context is open.

    Every CPU tensor reports ``cuda:0``. A module that copied a torch function before (``from torch
    import empty``) keeps its copy, so import the solution inside the context. At its end everything
    is as it was.

    Yields:
        Nothing.
    """
    patches, saved, scripted = _prepared()
    try:
        for owner, name, value in patches:
            setattr(owner, name, value)
        _builtins._get_builtin_table().update(scripted)  # type: ignore[no-untyped-call]
        torch.utils._device._device_constructors.cache_clear()
        _set_stance("force_eager")  # of what was compiled in an earlier context
        yield
    finally:
        for identity in scripted:
            _builtins._get_builtin_table().pop(identity, None)  # type: ignore[no-untyped-call]
        for (owner, name, _), original in zip(reversed(patches), reversed(saved), strict=True):
            if original is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        torch.utils._device._device_constructors.cache_clear()
        _set_stance("default")


def _set_stance(stance: str) -> None:
    """Tells torch's compiler what to do with compiled functions, where it has been imported."""
    if "torch._dynamo.eval_frame" in sys.modules:
        torch.compiler.set_stance(stance)


_MISSING = object()


def _own_attribute(owner: object, name: str) -> object:
    """Returns the attribute that the owner itself holds, not an inherited one."""
    return vars(owner).get(name, _MISSING)


#: The last patches, what they replaced, and their operators for ``torch.jit.script``: every call of a
#: candidate opens a context, and making them takes most of its time.
_last: tuple[list[_Patch], list[object], dict[int, str]] | None = None


def _prepared() -> tuple[list[_Patch], list[object], dict[int, str]]:
    """Returns the patches, what they replace, and their operators; the last ones if torch is as it was then."""
    global _last
    if _last is None or any(
        _own_attribute(owner, name) is not original for (owner, name, _), original in zip(*_last[:2], strict=True)
    ):
        patches = _patches()
        _last = patches, [_own_attribute(owner, name) for owner, name, _ in patches], _scripted(patches)
    return _last


def _patches() -> list[_Patch]:
    patches: list[_Patch] = []
    for name in _FACTORIES:
        if hasattr(torch, name):
            patches.append((torch, name, _on_cpu(getattr(torch, name), makes=name in _MAKERS)))
    for owner, name in ((torch.fft, "fftfreq"), (torch.fft, "rfftfreq"), (torch.nested, "nested_tensor")):
        patches.append((owner, name, _on_cpu(getattr(owner, name))))
    for name in _METHODS:
        patches.append((torch.Tensor, name, _on_cpu(getattr(torch.Tensor, name))))
    patches.extend(_tensor_patches())
    patches.extend(_device_patches())
    patches.extend(_registration_patches())
    patches.extend(_cuda_module_patches())
    patches.extend(cuda_build.patches())
    patches.extend((torch.cuda.nvtx, name, value) for name, value in cuda_module.marker_replacements().items())
    return patches


def _cuda_module_patches() -> Iterator[_Patch]:
    """Yields the patches of ``torch.cuda`` and of its submodules that define a name."""
    for name, value in cuda_module.replacements().items():
        yield torch.cuda, name, value
        original = getattr(torch.cuda, name, None)
        home = sys.modules.get(str(getattr(original, "__module__", "")))
        if home is not None and home.__name__.startswith("torch.cuda.") and vars(home).get(name) is original:
            yield home, name, value
    yield torch, "Stream", cuda_module.Stream
    yield torch, "Event", cuda_module.Event


def _scripted(patches: list[_Patch]) -> dict[int, str]:
    """Returns the ``torch.jit.script`` operator of each replacement, by the replacement's identity.

    ``torch.jit.script`` knows torch's functions by their identity.
    """
    find: Any = _builtins._find_builtin
    operators = ((value, find(getattr(owner, name, None))) for owner, name, value in patches)
    return {id(value): operator for value, operator in operators if operator is not None}


def _is_cuda(device: object) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and device.split(":")[0] == "cuda"


def _translated(device: Any) -> Any:
    """Returns the device that tensors really lie on. A device other than CUDA stays the same."""
    if not _is_cuda(device):
        return device
    index = torch.device(device).index
    if index is not None and index > 0:
        raise RuntimeError(
            f"CUDA error: invalid device ordinal (device {str(device)!r}; the emulator has one device, cuda:0)"
        )
    return torch.device(_place.type)


_move: Any = torch.Tensor.to
_device_of: Any = torch._C.TensorBase.device.__get__
#: Factories whose tensor may share memory with an argument that is no tensor.
_SHARING = frozenset({"as_tensor", "asarray"})


def _on_cpu(function: Callable[..., Any], makes: bool = False) -> Callable[..., Any]:
    """Wraps a function so that arguments that name the CUDA device, or pin memory for it, name the real one.

    In a rehearsal a function that ``makes`` tensors makes them there by default.
    """
    shares = getattr(function, "__name__", "") in _SHARING

    @functools.wraps(function)
    def translating(*args: Any, **kwargs: Any) -> Any:
        if any(_is_cuda(value) for value in args):
            args = tuple(_translated(value) for value in args)
        for name in ("device", "map_location"):
            if _is_cuda(kwargs.get(name)):
                kwargs[name] = _translated(kwargs[name])
        if makes and _place.type != "cpu" and kwargs.get("device") is None:
            kwargs["device"] = _place.type
        pins = bool(kwargs.get("pin_memory"))
        if "pin_memory" in kwargs:
            kwargs["pin_memory"] = False
        made = function(*args, **kwargs)
        if pins:
            cuda_build.pin(made)
        if shares and isinstance(made, torch.Tensor):
            # An operator, so that the runtime sees memory that torch has not allocated.
            made = _move(made, _device_of(made))
        return made

    return translating


def _tensor_patches() -> list[_Patch]:
    tensor = torch.Tensor
    base_device: Any = torch._C.TensorBase.device
    base_is_cuda: Any = torch._C.TensorBase.is_cuda
    base_is_cpu: Any = torch._C.TensorBase.is_cpu
    base_type: Any = tensor.type

    packs_sequence = rnn._packed_sequence_init_args.__code__

    def device(self: torch.Tensor) -> torch.device:
        actual: torch.device = base_device.__get__(self)
        if actual.type == "meta" and _place.type == "meta":
            # torch's own Python code computes shapes, and needs to know that there are no values.
            asking = sys._getframe(1).f_globals.get("__name__", "")
            return actual if asking.partition(".")[0] == "torch" else emulated_device()
        # To pack a sequence, torch demands batch sizes on the CPU. That is where they lie.
        is_own = actual.type != "cpu" or sys._getframe(1).f_code is packs_sequence
        return actual if is_own else emulated_device()

    def is_cuda(self: torch.Tensor) -> bool:
        is_rehearsed = _place.type == "meta" and self.is_meta
        return bool(base_is_cpu.__get__(self) or base_is_cuda.__get__(self) or is_rehearsed)

    def cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, **_: Any) -> torch.Tensor:
        _translated(torch.device("cuda", device) if isinstance(device, int) else device)
        # An operator, so that the runtime sees memory that torch has not allocated.
        moved: torch.Tensor = _move(self, _device_of(self))
        return moved

    def type_(self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is None and is_cuda(self):
            return f"torch.cuda.{base_type(self).removeprefix('torch.').removeprefix('meta.')}"
        named = dtype.replace("torch.cuda.", "torch.", 1) if isinstance(dtype, str) else dtype
        return base_type(self, named, *args, **kwargs)

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        # A bare number is the index of a CUDA device.
        if args and isinstance(args[0], int) and not isinstance(args[0], bool):
            args = (torch.device("cuda", args[0]), *args[1:])
        if isinstance(kwargs.get("device"), int):
            kwargs["device"] = torch.device("cuda", kwargs["device"])
        moved: torch.Tensor = translating_to(self, *args, **kwargs)
        return moved

    translating_to = _on_cpu(tensor.to)
    return [
        (tensor, "device", property(device)),
        (tensor, "is_cuda", property(is_cuda)),
        (tensor, "is_cpu", property(lambda self: False)),
        (tensor, "cuda", cuda),
        (tensor, "to", to),
        (tensor, "type", type_),
        (tensor, "pin_memory", lambda self, device=None: cuda_build.pin(self)),
        (tensor, "record_stream", lambda self, stream: None),
        (tensor, "get_device", lambda self: 0),
        (torch, "get_device", lambda tensor: 0),
    ]


def _device_patches() -> list[_Patch]:
    """Returns the patches of default devices, generators and autocast."""
    context = torch.utils._device.DeviceContext
    compile_function: Any = torch.compile
    set_up_context = context.__init__
    set_default = torch.set_default_device
    describe = MetaTensorDescriber.describe_tensor

    def describe_tensor(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A fake tensor, as torch.export makes them, names the device that the real one lies on.
        # With the emulated one's name, torch would look for a GPU and end the process.
        found: Any = describe(self, *args, **kwargs)
        return replace(found, device=_translated(found.device)) if _is_cuda(found.device) else found

    def context_init(self: Any, device: Any) -> None:
        set_up_context(self, _translated(device))

    def set_default_device(device: Any) -> None:
        set_default(_translated(device))

    def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
        # A compiler for the CPU would say nothing about the GPU's.
        torch.compiler.set_stance("force_eager")
        return compile_function(*args, **kwargs)

    return [
        (torch, "compile", functools.wraps(compile_function)(compile_eagerly)),
        (context, "__init__", context_init),
        (MetaTensorDescriber, "describe_tensor", describe_tensor),
        (torch.backends.cudnn, "is_acceptable", lambda tensor: False),
        (torch, "set_default_device", set_default_device),
        (autocast_class, "__init__", autocast.on_cpu(autocast_class.__init__)),
        *((torch, name, answer) for name, answer in autocast.questions().items()),
        (torch, "Generator", _emulated_generator()),
        (torch.accelerator, "is_available", lambda: True),
        (torch.accelerator, "device_count", lambda: 1),
        (torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda")),
        (torch.accelerator, "current_device_index", lambda: 0),
        (torch.accelerator, "synchronize", lambda device=None: None),
        (torch.accelerator, "current_stream", lambda device=None: cuda_module.Stream()),
    ]


def _emulated_generator() -> Any:
    original = torch.Generator

    class GeneratorType(type(original)):  # type: ignore[misc]
        """Makes calls and instance checks of this class those of the original."""

        def __call__(cls, device: Any = "cpu") -> Any:
            return cuda_build.CudaGenerator(device="cpu") if _is_cuda(device) else original(device=device)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    return GeneratorType("Generator", (), {})


def _registration_patches() -> list[_Patch]:
    """Returns patches that register a solution's CUDA operators for CPU tensors."""
    library: Any = torch.library.Library
    set_up_library, implement = library.__init__, library.impl
    register = CustomOpDef.register_kernel
    served: set[tuple[str, str, str]] = set()

    def library_init(self: Any, ns: str, kind: str, dispatch_key: str = "") -> None:
        own = _called_by_torch_itself()
        set_up_library(self, ns, kind, dispatch_key if own else _cpu_key(dispatch_key))
        self._cuemu_key = "" if own else dispatch_key

    def library_impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **kwargs: Any) -> Any:
        asked = dispatch_key or getattr(self, "_cuemu_key", "")
        kernel = (str(self.ns), str(op_name), _cpu_key(asked))
        if asked.endswith("CUDA") and not _called_by_torch_itself():
            served.add(kernel)
            with warnings.catch_warnings():
                # torch warns if the kernel replaces one that was registered for the CPU before.
                warnings.simplefilter("ignore")
                return implement(self, op_name, fn, _cpu_key(asked), **kwargs)
        if kernel in served:
            # The operator has its kernel for the CUDA device, where tensors seem to be.
            return None
        return implement(self, op_name, fn, dispatch_key, **kwargs)

    def register_kernel(self: Any, device_types: Any, fn: Any = None, /) -> Any:
        return register(self, _cpu_types(device_types), fn)

    return [
        (library, "__init__", library_init),
        (library, "impl", library_impl),
        (CustomOpDef, "register_kernel", register_kernel),
    ]


def _cpu_key(dispatch_key: str) -> str:
    """Returns the dispatch key of CPU tensors, such as AutogradCPU, for one of CUDA tensors."""
    return f"{dispatch_key.removesuffix('CUDA')}CPU" if dispatch_key.endswith("CUDA") else dispatch_key


def _called_by_torch_itself() -> bool:
    """Tells whether a registration comes from one of torch's own modules.

    Those register for both devices.
    """
    frame = inspect.currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module != __name__ and module != "torch.library" and not module.startswith("torch._library"):
            return module.split(".")[0] == "torch"
        frame = frame.f_back
    return False


def _cpu_types(device_types: Any) -> Any:
    if device_types is None or isinstance(device_types, str):
        return "cpu" if device_types == "cuda" else device_types
    return list(dict.fromkeys("cpu" if device == "cuda" else device for device in device_types))
