"""Tests what a CUDA build of torch has beside tensors and streams, inside ``emulated_cuda``."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.cuda.jiterator
import torch.cuda.nccl
import torch.cuda.tunable
from torch.utils import cpp_extension

from harness.compilation.errors import Unsupported
from harness.emulator.device import emulated_cuda

DEVICE = torch.device("cuda", 0)


@pytest.fixture
def emulated() -> Iterator[None]:
    with emulated_cuda():
        yield


@pytest.mark.usefixtures("emulated")
class TestInside:
    def test_versions_and_places_are_those_of_a_cuda_build(self) -> None:
        assert torch.version.cuda is not None
        assert int(torch.version.cuda.split(".")[0]) >= 12
        assert torch.backends.cuda.is_built()
        assert torch.backends.cudnn.is_available()
        assert (torch.backends.cudnn.version() or 0) > 90000
        home = cpp_extension.CUDA_HOME
        assert home is not None
        assert str(Path(home) / "include") in cpp_extension.include_paths("cuda")

    def test_tensors_name_their_type_on_the_device(self) -> None:
        x = torch.ones(2, dtype=torch.float16)
        assert x.type() == "torch.cuda.HalfTensor"
        assert x.type("torch.cuda.FloatTensor").dtype is torch.float32
        assert x.type(torch.float64).type() == torch.typename(x.double()) == "torch.cuda.DoubleTensor"
        assert torch.ones(2, dtype=torch.int32).type(x.type()).dtype is torch.float16
        assert torch.ones(2, device="meta").type() == "torch.meta.FloatTensor"

    def test_a_generator_is_on_its_device(self) -> None:
        generator = torch.Generator(device="cuda").manual_seed(3)
        assert generator.device == DEVICE
        assert torch.Generator().device == torch.device("cpu")
        assert isinstance(generator, torch.Generator)
        drawn = torch.randn(3, device="cuda", generator=generator)
        again = copy.deepcopy(generator.manual_seed(3))
        assert torch.equal(drawn, torch.randn(3, generator=again))

    def test_calls_of_the_runtime_succeed(self) -> None:
        runtime: Any = torch.cuda.cudart()
        torch.cuda.check_error(runtime.cudaProfilerStart())
        torch.cuda.check_error(runtime.cudaProfilerStop())
        pinned = torch.zeros(4)
        assert runtime.cudaHostRegister(pinned.data_ptr(), 16, 0) == runtime.cudaError.success
        assert runtime.cudaMemGetInfo(0) == torch.cuda.mem_get_info()
        assert runtime.cudaGetErrorString(runtime.cudaError.success) == "no error"

    def test_memory_has_an_address_until_it_is_freed(self) -> None:
        first, second = torch.cuda.caching_allocator_alloc(64), torch.cuda.caching_allocator_alloc(64)
        assert abs(first - second) >= 64
        torch.cuda.caching_allocator_delete(first)
        torch.cuda.caching_allocator_delete(second)

    def test_pools_and_statistics_have_no_effect(self) -> None:
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            assert torch.zeros(1, device="cuda").is_cuda
        assert pool.id != torch.cuda.MemPool().id
        assert len(torch.cuda.graph_pool_handle()) == 2
        torch.cuda.memory._record_memory_history(enabled=None)
        assert torch.cuda.memory._snapshot()["segments"] == []
        assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == 0
        assert not torch.cuda.tunable.is_enabled()
        torch.cuda.tunable.enable(False)
        assert len(torch.cuda.nccl.version()) == 3

    def test_a_device_has_the_properties_of_one(self) -> None:
        found: Any = torch.cuda.get_device_properties(0)
        assert str(found.uuid)
        assert found.clock_rate > 0
        assert (found.pci_bus_id, found.pci_device_id, found.pci_domain_id) == (1, 0, 0)
        assert found.memory_bus_width * found.memory_clock_rate > 0

    def test_memory_that_was_pinned_says_so(self) -> None:
        assert torch.empty(3, pin_memory=True).is_pinned()
        assert torch.empty(3).pin_memory().is_pinned()
        assert not torch.empty(3).is_pinned()

    def test_the_devices_work_is_profiled_as_the_hosts(self) -> None:
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profiler:
            torch.ones(3, device="cuda").exp()
        assert any(event.key == "aten::exp" for event in profiler.key_averages())

    @pytest.mark.parametrize(
        ("call", "construct"),
        [
            (lambda: torch.cuda.current_blas_handle(), "torch.cuda.current_blas_handle"),
            (lambda: torch.cuda.cudart().cudaStreamCreate(0), "cudart().cudaStreamCreate"),
            (lambda: torch.cuda.MemPool(object()), "torch.cuda.MemPool with an allocator"),
            (lambda: torch.cuda.CUDAPluggableAllocator("a", "b", "c"), "torch.cuda.CUDAPluggableAllocator"),
            (lambda: torch.cuda.jiterator._create_jit_fn("T f(T x)"), "torch.cuda.jiterator._create_jit_fn"),
            (lambda: torch.cuda.nccl.all_reduce([]), "torch.cuda.nccl.all_reduce"),
            (lambda: torch.cuda.utilization(), "torch.cuda.utilization"),
        ],
    )
    def test_what_needs_a_gpu_is_refused_by_name(self, call: Callable[[], object], construct: str) -> None:
        with pytest.raises(Unsupported) as refusal:
            call()
        assert refusal.value.construct == construct
        assert refusal.value.remedy

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_torchs_own_code_learns_of_no_cuda_build(self) -> None:
        # This module would import what a CUDA build alone has.
        assert importlib.import_module("torch._inductor.cudagraph_trees")


def test_everything_is_as_it_was() -> None:
    backends: tuple[Any, ...] = (torch.backends.cuda, torch.backends.cudnn)
    owners = (torch.version, cpp_extension, *backends, torch.cuda.memory, torch.cuda.nccl, torch._C, torch.Tensor)
    before = [dict(vars(owner)) for owner in owners]
    with emulated_cuda():
        assert cpp_extension.CUDA_HOME is not None
    for was, owner in zip(before, owners, strict=True):
        now = vars(owner)
        assert {name for name in was.keys() | now.keys() if was.get(name) is not now.get(name)} == set()


SOLUTION = '''\
import os
import torch
from torch.utils.cpp_extension import CUDA_HOME, include_paths, load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
void run(torch::Tensor x) { twice<<<1, 4>>>(x.data_ptr<float>()); }
"""
module = load_inline("twice", "void run(torch::Tensor x);", SOURCE, functions=["run"],
                     extra_include_paths=[TOOLKIT, *include_paths("cuda"), os.path.join(CUDA_HOME, "include")])
x = torch.ones(4, device="cuda")
module.run(x)
result = x.tolist()
'''


def test_a_toolkit_that_a_solution_searches_hides_no_header(
    tmp_path: Path, run_solution: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "cuda_runtime.h").write_text("#error a real toolkit\n")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "extension.h").write_text("#error a header beside it\n")
    assert run_solution(SOLUTION.replace("TOOLKIT", repr(str(tmp_path))))["result"] == [2.0] * 4
