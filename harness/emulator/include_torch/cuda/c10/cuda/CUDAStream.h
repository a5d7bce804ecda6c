// Streams of the emulated device: work is done when the launch returns, so all of them are the default stream.
#pragma once

#include <c10/core/Stream.h>
#include <c10/cuda/CUDAFunctions.h>

namespace c10::cuda {

class CUDAStream {
 public:
  enum Unchecked { UNCHECKED };
  CUDAStream() = default;
  explicit CUDAStream(Stream) {}
  explicit CUDAStream(Unchecked, Stream) {}

  bool operator==(const CUDAStream&) const noexcept { return true; }
  bool operator!=(const CUDAStream&) const noexcept { return false; }
  operator cudaStream_t() const { return stream(); }
  operator Stream() const { return unwrap(); }
  cudaStream_t stream() const { return cudaStream_t{}; }
  DeviceType device_type() const { return DeviceType::CPU; }
  DeviceIndex device_index() const { return 0; }
  Device device() const { return Device(DeviceType::CPU); }
  StreamId id() const { return 0; }
  bool query() const { return true; }
  void synchronize() const { c10::cuda::stream_synchronize(stream()); }
  int priority() const { return 0; }
  Stream unwrap() const { return Stream(Stream::DEFAULT, device()); }
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(int, DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromExternal(cudaStream_t, DeviceIndex) { return {}; }
inline void setCurrentCUDAStream(CUDAStream) {}

} // namespace c10::cuda
