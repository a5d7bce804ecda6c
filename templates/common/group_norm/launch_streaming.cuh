// Launching kernels that stream (streaming.cuh).

inline Chunks chunks_of(const Shape& shape) {
  const int of_row = static_cast<int>(shape.spatial / kChunk);
  const int channels_per_group = static_cast<int>(shape.channels / shape.groups);
  return {static_cast<int>(shape.samples * shape.groups), channels_per_group * of_row, of_row, channels_per_group,
          static_cast<int>(shape.groups)};
}

// Whether a kernel was compiled for devices that have what it needs, and not for older ones, where it does nothing.
template <typename Kernel>
bool is_compiled(Kernel* kernel) {
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.ptxVersion >= 90;
}

inline LaunchStatus status_of(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {nullptr, nullptr};
  cudaGetLastError();
  return {what, cudaGetErrorString(error)};
}

// A type that is said, not deduced.
template <typename T>
struct Said {
  using Type = T;
};

// Clears the words and launches a block a multiprocessor, all of which run at the same time or none.
template <typename... Parameters>
LaunchStatus launch_streaming(void (*kernel)(Parameters...), const char* name, int blocks, int threads,
                              int shared_bytes, ulonglong2* words, const Chunks& chunks, cudaStream_t stream,
                              typename Said<Parameters>::Type... arguments) {
  const size_t parts = chunks.of_group < blocks ? chunks.of_group : blocks;
  LaunchStatus status = status_of(
      cudaMemsetAsync(words, 0xff, sizeof(ulonglong2) * chunks.groups * parts, stream), "clearing words");
  if (status.kernel != nullptr) return status;
  status = status_of(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), name);
  if (status.kernel != nullptr) return status;
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  return status_of(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(threads),
                                               pointers, shared_bytes, stream),
                   name);
}
