"""Device memory that two processes share through CUDA's virtual memory API and a file descriptor.

Each allocation is separate, so its handle exposes nothing else. It also works between users. Legacy
CUDA IPC does neither: it exposes the whole segment that a tensor lies in.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from harness.errors import DeviceError


class DeviceMemoryError(DeviceError):
    """The error for a device with too little free memory.

    The message says how much was needed and how much was free.
    """


class SharedDeviceMemory:
    """A mapping of shared device memory into this process.

    Args:
        index: The CUDA device.
        handle: The driver's handle of the allocation.
        mapped_bytes: The size of the allocation, a multiple of the device's granularity.
    """

    def __init__(self, index: int, handle: Any, mapped_bytes: int):
        driver = _driver()
        self._handle = handle
        self.mapped_bytes = mapped_bytes
        self._address = _check(driver.cuMemAddressReserve(mapped_bytes, 0, 0, 0), "cuMemAddressReserve")
        _check(driver.cuMemMap(self._address, mapped_bytes, 0, handle, 0), "cuMemMap")
        access = driver.CUmemAccessDesc()
        access.location = _properties(index).location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        _check(driver.cuMemSetAccess(self._address, mapped_bytes, [access], 1), "cuMemSetAccess")
        self._device = torch.device("cuda", index)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory as a vector of bytes, in the form that ``torch.as_tensor`` reads."""
        return {
            "shape": (self.mapped_bytes,),
            "typestr": "|u1",
            "data": (int(self._address), False),
            "strides": None,
            "version": 3,
        }

    def tensor(self) -> torch.Tensor:
        """Returns the whole memory as a uint8 tensor of shape (mapped_bytes,).

        The tensor shares the memory and is valid until ``close``.
        """
        return torch.as_tensor(self, device=self._device)

    def close(self) -> None:
        """Unmaps and releases the memory. The caller must not use tensors over it afterwards."""
        driver = _driver()
        torch.cuda.synchronize(self._device)
        _check(driver.cuMemUnmap(self._address, self.mapped_bytes), "cuMemUnmap")
        _check(driver.cuMemAddressFree(self._address, self.mapped_bytes), "cuMemAddressFree")
        _check(driver.cuMemRelease(self._handle), "cuMemRelease")


def create(index: int, size: int) -> tuple[SharedDeviceMemory, int]:
    """Allocates shared device memory.

    Args:
        index: The CUDA device.
        size: The number of bytes to allocate. The function rounds it up to the device's
            granularity.

    Returns:
        The mapping, and a file descriptor for another process. The caller closes the descriptor.

    Raises:
        DeviceMemoryError: The device has too little free memory.
        DeviceError: The driver refused for another reason.
    """
    driver = _driver()
    torch.zeros(1, device=torch.device("cuda", index))  # the driver calls below need a current context
    properties = _properties(index)
    minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    granularity = _check(driver.cuMemGetAllocationGranularity(properties, minimum), "cuMemGetAllocationGranularity")
    mapped_bytes = -(-size // granularity) * granularity
    handle = _check(driver.cuMemCreate(mapped_bytes, properties, 0), "cuMemCreate", mapped_bytes)
    descriptor = _check(driver.cuMemExportToShareableHandle(handle, _handle_type(), 0), "cuMemExportToShareableHandle")
    return SharedDeviceMemory(index, handle, mapped_bytes), int(descriptor)


def attach(index: int, descriptor: int, mapped_bytes: int) -> SharedDeviceMemory:
    """Maps memory that another process created, and closes the descriptor.

    Raises:
        DeviceError: The driver refused.
    """
    driver = _driver()
    torch.zeros(1, device=torch.device("cuda", index))
    try:
        handle = _check(
            driver.cuMemImportFromShareableHandle(descriptor, _handle_type()), "cuMemImportFromShareableHandle"
        )
    finally:
        os.close(descriptor)
    return SharedDeviceMemory(index, handle, mapped_bytes)


def _properties(index: int) -> Any:
    driver = _driver()
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = index
    properties.requestedHandleTypes = _handle_type()
    return properties


def _handle_type() -> Any:
    return _driver().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError:
        raise DeviceError(
            "the package cuda-bindings, which passes tensors between processes on a GPU, is missing; install "
            'it with pip install -e ".[gpu]"'
        ) from None
    return driver


def _check(results: Any, call: str, size: int | None = None) -> Any:
    """Returns the value of a driver call, or raises if the call failed.

    Raises:
        DeviceMemoryError: The driver ran out of memory when ``size`` bytes were requested.
        DeviceError: The call failed for another reason.
    """
    driver = _driver()
    status, *values = results
    if status == driver.CUresult.CUDA_SUCCESS:
        return values[0] if values else None
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY and size is not None:
        free, total = torch.cuda.mem_get_info()
        raise DeviceMemoryError(
            f"the exchange arena needs {size / 2**30:.1f} GiB of device memory, but only {free / 2**30:.1f} "
            f"of {total / 2**30:.1f} GiB are free"
        )
    raise DeviceError(f"{call} failed: {status.name}")
