// Guards have nothing to guard: there is one device and one stream.
#pragma once

#include <c10/cuda/CUDAStream.h>
#include <c10/util/ArrayRef.h>

#include <optional>

namespace c10::cuda {

struct CUDAGuard {
  explicit CUDAGuard(DeviceIndex) {}
  explicit CUDAGuard(Device) {}
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;
  ~CUDAGuard() {}
  void set_device(Device) {}
  void reset_device(Device) {}
  void set_index(DeviceIndex) {}
  Device original_device() const { return Device(DeviceType::CPU); }
  Device current_device() const { return Device(DeviceType::CPU); }
};

struct OptionalCUDAGuard {
  OptionalCUDAGuard() {}
  explicit OptionalCUDAGuard(std::optional<Device>) {}
  explicit OptionalCUDAGuard(std::optional<DeviceIndex>) {}
  OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
  OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;
  ~OptionalCUDAGuard() {}
  void set_device(Device) {}
  void reset_device(Device) {}
  void set_index(DeviceIndex) {}
  std::optional<Device> original_device() const { return Device(DeviceType::CPU); }
  std::optional<Device> current_device() const { return Device(DeviceType::CPU); }
  void reset() {}
};

struct CUDAStreamGuard {
  explicit CUDAStreamGuard(Stream) {}
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;
  ~CUDAStreamGuard() {}
  void reset_stream(Stream) {}
  CUDAStream original_stream() const { return {}; }
  CUDAStream current_stream() const { return {}; }
  Device current_device() const { return Device(DeviceType::CPU); }
  Device original_device() const { return Device(DeviceType::CPU); }
};

struct OptionalCUDAStreamGuard {
  OptionalCUDAStreamGuard() {}
  explicit OptionalCUDAStreamGuard(std::optional<Stream>) {}
  OptionalCUDAStreamGuard(const OptionalCUDAStreamGuard&) = delete;
  OptionalCUDAStreamGuard& operator=(const OptionalCUDAStreamGuard&) = delete;
  ~OptionalCUDAStreamGuard() {}
  void reset_stream(Stream) {}
  std::optional<CUDAStream> original_stream() const { return CUDAStream(); }
  std::optional<CUDAStream> current_stream() const { return CUDAStream(); }
  void reset() {}
};

struct CUDAMultiStreamGuard {
  explicit CUDAMultiStreamGuard(ArrayRef<CUDAStream>) {}
  ~CUDAMultiStreamGuard() {}
};

} // namespace c10::cuda
