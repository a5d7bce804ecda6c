// Events are complete as soon as they are recorded.
#pragma once

#include <ATen/cuda/CUDAContext.h>

namespace at::cuda {
struct CUDAEvent {
  CUDAEvent(unsigned int = 0) {}
  bool isCreated() const { return true; }
  bool query() const { return true; }
  void record() {}
  void record(const CUDAStream&) {}
  void recordOnce(const CUDAStream&) {}
  void block(const CUDAStream&) {}
  void synchronize() const {}
  float elapsed_time(const CUDAEvent&) const { return 0.0f; }
};
} // namespace at::cuda
