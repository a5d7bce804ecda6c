// The emulated machine has one device, number 0.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>

namespace c10::cuda {
inline DeviceIndex device_count() noexcept { return 1; }
inline DeviceIndex device_count_ensure_non_zero() { return 1; }
inline DeviceIndex current_device() { return 0; }
inline void set_device(DeviceIndex device, bool = false) {
  TORCH_CHECK(device <= 0, "CUDA error: invalid device ordinal");
}
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
inline cudaError_t GetDeviceCount(int* count) { return cudaGetDeviceCount(count); }
inline cudaError_t GetDevice(DeviceIndex* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t SetDevice(DeviceIndex device, bool = false) { return cudaSetDevice(device); }
// A negative number, as that of a tensor on the CPU, means the current device.
inline cudaError_t MaybeSetDevice(DeviceIndex device) { return device < 0 ? cudaSuccess : cudaSetDevice(device); }
inline void SetTargetDevice() {}
inline DeviceIndex ExchangeDevice(DeviceIndex) { return 0; }
inline DeviceIndex MaybeExchangeDevice(DeviceIndex) { return 0; }
inline void memcpy_and_sync(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream));
  C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}
inline void stream_synchronize(cudaStream_t stream) { C10_CUDA_CHECK(cudaStreamSynchronize(stream)); }
} // namespace c10::cuda
