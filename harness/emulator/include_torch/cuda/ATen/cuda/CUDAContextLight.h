// The emulated device's context: one device, one stream.
#pragma once

#include <c10/cuda/CUDAStream.h>
#if __has_include(<cublas_v2.h>)  // an installation of nvcc alone has none
#include <cublas_v2.h>
#endif

namespace at::cuda {
inline int64_t getNumGPUs() { return 1; }
inline bool is_available() { return true; }
inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex) {
  static cudaDeviceProp properties = [] {
    cudaDeviceProp read{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&read, 0));
    return read;
  }();
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline int warp_size() { return 32; }
inline bool canDeviceAccessPeer(c10::DeviceIndex, c10::DeviceIndex) { return false; }

#if __has_include(<cublas_v2.h>)
cublasHandle_t getCurrentCUDABlasHandle(bool = true);
#endif

#define CUEMU_NO_LIBRARY(LIBRARY) \
  __attribute__((error("cuemu-unsupported: " LIBRARY ": write the operation as a kernel, or call torch's in Python")))
void* getCurrentCUDABlasLtHandle() CUEMU_NO_LIBRARY("cuBLAS");
void* getCurrentCUDASparseHandle() CUEMU_NO_LIBRARY("cuSPARSE");
void* getCurrentCUDASolverDnHandle() CUEMU_NO_LIBRARY("cuSOLVER");
#undef CUEMU_NO_LIBRARY
} // namespace at::cuda
