"""Tests what "cuda" means inside ``emulated_cuda``, in every API that a solution may call."""

from __future__ import annotations

import copy
import functools
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import nn

from harness.emulator.device import emulated_cuda

REPOSITORY = Path(__file__).resolve().parents[2]
CUDA = torch.device("cuda:0")


def kind(value: object) -> str:
    if inspect.isclass(value):
        return "class"
    return "module" if inspect.ismodule(value) else "callable" if callable(value) else type(value).__name__


OWNERS = (torch, torch.cuda, torch.cuda.streams, torch.cuda.graphs, torch.cuda.nvtx, torch.accelerator, torch.Tensor)
KINDS = [(owner, name, kind(getattr(owner, name))) for owner in OWNERS for name in dir(owner)]


@pytest.fixture(autouse=True)
def _emulated() -> Iterator[None]:
    with emulated_cuda():
        yield


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3).cuda(),
        lambda: torch.randn(3).cuda(0),
        lambda: torch.randn(3).to("cuda"),
        lambda: torch.randn(3).to(0),
        lambda: torch.randn(3).to(device="cuda:0", dtype=torch.float64),
        lambda: torch.randn(3).to(torch.device("cuda"), torch.float16),
        lambda: torch.randn(3).to(torch.zeros(1, device="cuda")),
        lambda: torch.empty(3, device="cuda"),
        lambda: torch.zeros((2, 2), device=torch.device("cuda", 0), dtype=torch.int32),
        lambda: torch.tensor([1.0], device="cuda"),
        lambda: torch.arange(4, device="cuda:0"),
        lambda: torch.full((2,), 3.0, device="cuda"),
        lambda: torch.empty_like(torch.ones(2), device="cuda"),
        lambda: torch.ones(2).new_zeros(3, device="cuda"),
        lambda: torch.rand(2, generator=torch.Generator(device="cuda").manual_seed(1), device="cuda"),
        lambda: nn.Parameter(torch.ones(2)).cuda(),
        lambda: next(nn.Linear(2, 2, device="cuda").parameters()),
        lambda: next(nn.Linear(2, 2).cuda().parameters()),
        lambda: next(nn.Linear(2, 2).to("cuda").parameters()),
    ],
)
def test_tensors_are_on_the_device(make: object) -> None:
    tensor = make()  # type: ignore[operator]
    assert tensor.is_cuda
    assert tensor.device == CUDA
    assert tensor.get_device() == 0
    assert torch.ones_like(tensor).device == torch.zeros(1, device=tensor.device).device


def test_default_devices() -> None:
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda
    torch.set_default_device("cuda")
    try:
        assert torch.zeros(2).is_cuda
    finally:
        torch.set_default_device(None)


def packed_elements(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return nn.utils.rnn.pack_padded_sequence(x, lengths).data


@pytest.mark.parametrize("lengths", [[5, 3, 1], [1, 5, 3]])
def test_padded_sequences_are_packed(lengths: list[int]) -> None:
    x = torch.randn(5, 3, 4, device="cuda", requires_grad=True)
    sizes = torch.tensor(lengths, device="cuda").cpu()
    packed = nn.utils.rnn.pack_padded_sequence(x, sizes, enforce_sorted=False)
    assert packed.is_cuda
    outputs, last = nn.GRU(4, 4, device="cuda")(packed.to("cuda"))
    padded, found = nn.utils.rnn.pad_packed_sequence(outputs)
    assert found.tolist() == lengths
    torch.testing.assert_close(padded[found - 1, torch.arange(3)], last[0])
    padded.sum().backward()
    assert x.grad is not None
    sequences = [torch.ones(2, device="cuda"), torch.ones(1, device="cuda")]
    assert nn.utils.rnn.pack_sequence(sequences).batch_sizes.tolist() == [2, 1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_code_packs_sequences() -> None:
    x, lengths = torch.randn(2, 3, device="cuda"), torch.tensor([2, 2, 1])
    scripted = torch.jit.script(packed_elements)
    torch.testing.assert_close(scripted(x, lengths), packed_elements(x, lengths))


def test_memory_is_pinned() -> None:
    torch.testing.assert_close(torch.zeros(2, pin_memory=True), torch.zeros(2))
    x = torch.randn(3, device="cuda", requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        (x * x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_a_second_device_does_not_exist() -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.zeros(1, device="cuda:1")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.set_device(1)


def test_other_devices_keep_their_names() -> None:
    assert torch.empty(2, device="meta").device.type == "meta"
    assert not torch.empty(2, device="meta").is_cuda


class Doubled(torch.autograd.Function):
    """Doubles, and notes what its two passes see."""

    seen: ClassVar[list[tuple[str, bool, torch.device, torch.device]]] = []

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        Doubled.seen.append(("forward", x.is_cuda, x.device, torch.empty(1, device=x.device).device))
        return x * 2

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        Doubled.seen.append(("backward", grad.is_cuda, grad.device, torch.empty(1, device="cuda").device))
        return grad * 2


def test_it_holds_inside_custom_functions_and_hooks() -> None:
    Doubled.seen = []
    x = torch.randn(3, device="cuda", requires_grad=True)
    y = Doubled.apply(x)
    y.register_hook(lambda grad: Doubled.seen.append(("hook", grad.is_cuda, grad.device, grad.cuda().device)))
    y.sum().backward()
    assert sorted(place for place, *_ in Doubled.seen) == ["backward", "forward", "hook"]
    assert all(seen[1:] == (True, CUDA, CUDA) for seen in Doubled.seen)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.full((3,), 2.0))


def test_grad_takes_cotangents_made_on_the_device() -> None:
    x = torch.randn(3, device="cuda", requires_grad=True)
    (grad,) = torch.autograd.grad(Doubled.apply(x), x, torch.full((3,), 5.0, device="cuda"))
    torch.testing.assert_close(grad, torch.full((3,), 10.0))
    double = torch.randn(2, dtype=torch.float64, device="cuda", requires_grad=True)
    assert torch.autograd.gradcheck(Doubled.apply, (double,))


def test_modules_copy_save_and_train() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4)).cuda()
    twin = copy.deepcopy(module)
    twin.load_state_dict(module.state_dict())
    optimizer = torch.optim.Adam(twin.parameters())
    twin(torch.randn(2, 4, device="cuda")).sum().backward()
    optimizer.step()
    assert all(isinstance(parameter, nn.Parameter) and parameter.is_cuda for parameter in twin.parameters())
    assert not torch.equal(twin[1].bias, module[1].bias)
    assert "device='cuda:0'" in repr(torch.ones(1))


#: Libraries of operators. Before torch 2.11, torch.compile fails in a process where one has gone.
KEPT: list[torch.library.Library] = []


def test_operators_registered_for_the_device_serve_its_tensors() -> None:
    @torch.library.custom_op("emulator_test::twice", mutates_args=(), device_types="cuda")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x, device="cuda").copy_(x * 2)

    library = torch.library.Library("emulator_test", "FRAGMENT")
    KEPT.append(library)
    library.define("thrice(Tensor x) -> Tensor")
    library.impl("thrice", lambda x: x * 3, "CUDA")
    torch.testing.assert_close(twice(torch.ones(2, device="cuda")), torch.full((2,), 2.0))
    torch.testing.assert_close(torch.ops.emulator_test.thrice(torch.ones(2)), torch.full((2,), 3.0))


def test_every_kind_of_registration_for_the_device_serves_its_tensors() -> None:
    library = torch.library.Library("emulator_keys", "FRAGMENT")
    KEPT.append(library)
    library.define("scaled(Tensor x) -> Tensor")
    library.impl("scaled", lambda x: x * 2, "CPU")
    library.impl("scaled", lambda x: x * 3, "AutogradCUDA")
    library.impl("scaled", lambda x: x * 5, "AutocastCUDA")
    x = torch.ones(2, device="cuda", requires_grad=True)
    with torch.no_grad():
        torch.testing.assert_close(torch.ops.emulator_keys.scaled(torch.ones(2)), torch.full((2,), 3.0))
    torch.testing.assert_close(torch.ops.emulator_keys.scaled(x), torch.full((2,), 3.0))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        torch.testing.assert_close(torch.ops.emulator_keys.scaled(x), torch.full((2,), 5.0))


def test_the_cuda_module() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    assert torch.cuda.get_device_capability() == (9, 0)
    assert torch.cuda.get_device_properties(0).multi_processor_count > 0
    assert torch.cuda.current_stream().cuda_stream == 0
    assert torch.cuda.max_memory_allocated() == 0
    assert not torch.cuda.is_current_stream_capturing()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0), torch.cuda.nvtx.range("x"):
        start.record()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        end.record()
    assert start.elapsed_time(end) >= 0.0
    with pytest.raises(RuntimeError, match="must be recorded"):
        start.elapsed_time(torch.cuda.Event())


def test_seeds_of_the_device_are_the_generators() -> None:
    torch.cuda.manual_seed_all(7)
    first = torch.randn(4, device="cuda")
    torch.manual_seed(7)
    torch.testing.assert_close(torch.randn(4, device="cuda"), first, rtol=0, atol=0)


def test_automatic_casts_name_the_device() -> None:
    x = torch.randn(3, 3, device="cuda")
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16


def test_a_function_knows_of_automatic_casts() -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            seen.append((torch.is_autocast_enabled(), torch.is_autocast_enabled("cuda")))
            a, b = ctx.saved_tensors
            return grad @ b.T, a.T @ grad

    class Inherits(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda")
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return (a @ a).float()

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            (a,) = ctx.saved_tensors
            seen.append((torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()))
            assert (grad @ a.T).dtype is torch.bfloat16
            return grad @ a.T + a.T @ grad

    seen: list[object] = []
    x = torch.randn(3, 3, device="cuda", requires_grad=True)
    assert (torch.is_autocast_enabled(), torch.get_autocast_dtype("cuda")) == (False, torch.float16)
    assert Product.apply(x, x).dtype is torch.float32
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()) == (True, torch.bfloat16)
        cast, inherits = Product.apply(x, x), Inherits.apply(x)
    assert cast.dtype is torch.float16
    cast.sum().backward()
    inherits.sum().backward()
    assert seen == [(False, False), (True, torch.bfloat16)]


def test_every_name_keeps_its_kind() -> None:
    properties = {(torch.Tensor, name) for name in ("device", "is_cuda", "is_cpu")}
    properties.add((torch.cuda, "_cudart"))  # None, or a module
    changed = [
        f"{owner.__name__}.{name}: {before} -> {kind(getattr(owner, name))}"
        for owner, name, before in KINDS
        if kind(getattr(owner, name)) != before and (owner, name) not in properties
    ]
    assert changed == []


@pytest.mark.parametrize(
    ("value", "classes"),
    [
        (lambda: torch.cuda.current_stream(), ("cuda.Stream", "cuda.streams.Stream", "Stream")),
        (lambda: torch.accelerator.current_stream(), ("cuda.Stream", "Stream")),
        (lambda: torch.cuda.ExternalStream(0), ("cuda.ExternalStream", "cuda.Stream", "Stream")),
        (lambda: torch.cuda.stream(torch.cuda.Stream()), ("cuda.StreamContext",)),
        (lambda: torch.cuda.Event(enable_timing=True), ("cuda.Event", "cuda.streams.Event", "Event")),
        (lambda: torch.cuda.device_of(torch.ones(1)), ("cuda.device_of", "cuda.device")),
        (lambda: torch.ones(2, device="cuda"), ("cuda.FloatTensor",)),
        (lambda: torch.cuda.HalfTensor(2, 3), ("cuda.HalfTensor", "Tensor")),
        (lambda: torch.cuda.default_generators[0], ("Generator",)),
    ],
)
def test_values_are_instances_of_the_public_classes(value: Callable[[], object], classes: tuple[str, ...]) -> None:
    made = value()
    for name in classes:
        assert isinstance(made, functools.reduce(getattr, name.split("."), torch)), name  # type: ignore[arg-type]


def test_public_classes_can_be_subclassed() -> None:
    class Recorded(torch.cuda.Event):
        pass

    class Side(torch.cuda.Stream):
        pass

    assert isinstance(Side().record_event(Recorded()), Recorded)


# The others ask for an argument, torch's allocator or NVML.
QUESTIONS = {name for name in torch.cuda.__all__ if name.startswith(("get_", "reset_", "memory_"))} - {
    "get_allocator_backend",
    "get_stream_from_external",
    "memory_usage",
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_questions_without_arguments_have_answers(name: str) -> None:
    getattr(torch.cuda, name)()


def like(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x) + torch.full((2,), 3.0, device=x.device) + torch.arange(2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_code_uses_factories() -> None:
    x = torch.ones(2, device="cuda")
    torch.testing.assert_close(torch.jit.script(like)(x), like(x))
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True, dropout=0.0).eval().cuda()
    y = torch.randn(2, 3, 8, device="cuda")
    torch.testing.assert_close(torch.jit.script(layer)(y), layer(y))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_module_runs_eagerly() -> None:
    model = nn.Linear(2, 2).cuda()
    compiled = torch.compile(model, mode="max-autotune", fullgraph=True)
    x = torch.randn(1, 2, device="cuda", requires_grad=True)
    torch.testing.assert_close(compiled(x), model(x))
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]  # as elsewhere

    @torch.compile(dynamic=True)
    def where(x: torch.Tensor) -> torch.device:
        assert x.is_cuda
        return x.device

    assert where(x) == CUDA
    model.compile()
    model(x).sum().backward()
    assert x.grad is not None
    with emulated_cuda():  # of a later stage, as a forward is after an import
        pass
    with emulated_cuda():
        assert where(x) == CUDA


EXPORTING = """
import torch
from torch import nn
from harness.emulator.device import emulated_cuda


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        offset = torch.ones(4, device=x.device) + torch.zeros(4, device="cuda")
        return torch.addcmul(self.layer(x).tanh(), x, torch.zeros_like(x)) + offset


with emulated_cuda():
    model, x = Model().cuda(), torch.randn(4, device="cuda", requires_grad=True)
    exported = torch.export.export(model, (x,)).module()
    torch.testing.assert_close(exported(x), model(x))
    exported(x).sum().backward()
    assert x.grad is not None
    assert exported(x).device == torch.device("cuda", 0)
"""


@pytest.mark.slow
def test_a_module_can_be_exported() -> None:
    # In a process of its own: a fake tensor that names the emulated device ends it.
    ran = subprocess.run([sys.executable, "-c", EXPORTING], cwd=REPOSITORY, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
