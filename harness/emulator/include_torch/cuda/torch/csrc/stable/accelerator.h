// The stable ABI's guard and streams for the emulated device: one device, one stream.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/macros/Macros.h>

#include <cstdint>

HIDDEN_NAMESPACE_BEGIN(torch, stable, accelerator)

using DeviceIndex = int32_t;
using StreamId = int64_t;

class DeviceGuard {
 public:
  explicit DeviceGuard() = delete;
  explicit DeviceGuard(DeviceIndex) {}
  ~DeviceGuard() {}
  void set_index(DeviceIndex) {}
};

class Stream {
 public:
  StreamId id() const { return 0; }
  void* nativeHandle() const { return nullptr; }
};

inline Stream getCurrentStream(DeviceIndex) { return Stream(); }
inline DeviceIndex getCurrentDeviceIndex() { return 0; }

HIDDEN_NAMESPACE_END(torch, stable, accelerator)
