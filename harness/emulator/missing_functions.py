"""Recognises functions of CUDA that the emulator lacks in a compiler's errors.

A source that uses one is unsupported, not wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """Names of CUDA that the emulator lacks for one reason.

    Attributes:
        names: Matches each of them.
        what: What they are, for messages; empty if a name says it.
        remedy: What a source may do instead.
    """

    names: re.Pattern[str]
    what: str
    remedy: str


def _family(names: str, what: str, remedy: str) -> Family:
    return Family(re.compile(names), what, remedy)


_FAMILIES = (
    _family(r"tex(1D|2D|3D|Cubemap)\w*|cuda\w*Texture\w*", "textures", "read global memory"),
    _family(r"surf(1D|2D|3D|Cubemap)\w*|cuda\w*Surface\w*", "surfaces", "read and write global memory"),
    _family(
        r"cuda(Array\w+|MallocMipmappedArray|Malloc3DArray|\w*MipmappedArray\w*|FreeArray)"
        r"|cudaMemcpy(2D)?(To|From)Array(Async)?|cudaMemcpy(2D)?ArrayToArray"
        r"|cuda(Get|Create)ChannelDesc\w*|cudaChannelFormatDesc",
        "CUDA arrays",
        "use cudaMalloc",
    ),
    _family(
        r"cuda(Graph[A-Z_]\w*|GetCurrentGraphExec|DeviceGraphMem\w+|UserObject\w+|StreamEndCapture"
        r"|StreamBeginCaptureToGraph|StreamGetCaptureInfo\w*|StreamUpdateCaptureDependencies\w*"
        r"|ThreadExchangeStreamCaptureMode|Device[GS]etGraphMemAttribute)",
        "CUDA graphs",
        "launch the kernels directly",
    ),
    _family(
        r"cuda(MemPool\w+|MallocFromPoolAsync|Device(GetDefault|Get|Set)MemPool|Mem(GetDefault|Get|Set)MemPool)",
        "memory pools",
        "use cudaMalloc or cudaMallocAsync",
    ),
    _family(
        r"cuda(Malloc3D|Memcpy3D\w*|Memset3D\w*|PitchedPtr|Extent|make_cuda\w+)|make_cuda(Extent|Pos|PitchedPtr)",
        "copies of boxes",
        "use cudaMemcpy or cudaMemcpy2D, or copy in a kernel",
    ),
    _family(
        r"cuda(Ipc\w+|\w*External(Memory|Semaphore)\w*|Graphics\w+)",
        "memory of other processes and interfaces",
        "keep the data in tensors",
    ),
    _family(
        r"cuda(Library\w+|Kernel\w+|GetKernel|GetFuncBySymbol|GetExportTable|FuncGet(Name|ParamInfo))",
        "kernels by handles",
        "launch the kernel by its name",
    ),
    _family(r"cudaLaunchKernelEx", "a launch in a C++ source", "use cudaLaunchKernelExC"),
    _family(
        r"cuda(GetParameterBuffer(V2)?|LaunchDevice(V2)?|CG\w+)|__cudaDeviceSynchronizeDeprecationAvoidance",
        "dynamic parallelism",
        "launch the kernel from the host",
    ),
    _family(
        r"cuda(Stream(AddCallback|AttachMemAsync|CopyAttributes|[GS]etAttribute|GetDevice|GetId)|LaunchHostFunc"
        r"|CtxResetPersistingL2Cache|Device(Disable|Enable)PeerAccess|DeviceFlushGPUDirectRDMAWrites"
        r"|DeviceGet(ByPCIBusId|PCIBusId|CacheConfig|SharedMemConfig|P2P\w+|HostAtomicCapabilities|NvSci\w+)"
        r"|DeviceGetTexture1DLinearMaxWidth|Device(Unr|R)egisterAsyncNotification|ChooseDevice|SetValidDevices"
        r"|InitDevice|GetDeviceFlags|HostGetFlags|Logs\w+|Mem(Discard|Prefetch|cpy)\w*BatchAsync"
        r"|MemRangeGetAttributes?|Occupancy(AvailableDynamicSMemPerBlock|MaxActiveClusters|MaxPotentialClusterSize))",
        "",
        "leave the call out, or judge on a GPU",
    ),
    _family(r"__is(Constant|GridConstant)", "", "tell places apart with __isGlobal, __isShared or __isLocal"),
    _family(r"__pm[0-3]|_?_prof_\w+", "", "leave out the counters of a GPU's profiler"),
    _family(r"__cluster_map_shared_multicast", "", "use __cluster_map_shared_rank"),
    _family(r"__nv_atomic_\w+|__(i|u|f|d|ll|ull|ill|us|u128|f2|f4)Atomic\w+", "", "use atomicAdd and its like"),
    _family(
        r"__nv_(fp128|associate_access_property|memcpy_async_shared_global|aligned_device_malloc)\w*|__nvvm_\w+",
        "",
        "use the function of CUDA's documentation for this",
    ),
    _family(
        r"d(add|sub|mul)|(float|u?int|u?ll)2double|double2u?(int|ll)|syncthreads_(and|or|count)",
        "",
        "use the function that begins with two underscores",
    ),
)
_UNDECLARED = re.compile(
    r"'(?:::)?(?P<name>\w+)' (?:was not declared|has not been declared|does not name a type|is not a type)"
    r"|there are no arguments to '(?P<called>\w+)' that depend on a template parameter"
    r"|(?:use of undeclared identifier|unknown type name) '(?P<unknown>\w+)'"
)


def missing_function(message: str) -> tuple[str, str] | None:
    """Returns what the emulator lacks if a compiler's message says that a name of CUDA's is not declared.

    Args:
        message: An error of g++ or clang++.

    Returns:
        The construct and the remedy; None if the message is about something else.
    """
    found = _UNDECLARED.search(message)
    name = next((word for word in found.groups() if word), "") if found else ""
    for family in _FAMILIES:
        if name and family.names.fullmatch(name):
            return (f"{name} ({family.what})" if family.what else name), family.remedy
    return None
