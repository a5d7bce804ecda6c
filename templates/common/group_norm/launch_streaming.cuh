// Launching kernels that stream (streaming.cuh).

inline Chunks chunks_of(const Shape& shape) {
  const int of_row = static_cast<int>(shape.spatial / kChunk);
  const int channels_per_group = static_cast<int>(shape.channels / shape.groups);
  return {static_cast<int>(shape.samples * shape.groups), channels_per_group * of_row, of_row, channels_per_group,
          static_cast<int>(shape.groups)};
}

// Clears the words and launches a block a multiprocessor, all of which run at the same time or none.
template <typename... Parameters, typename... Arguments>
LaunchStatus launch_streaming(void (*kernel)(Parameters...), const char* name, int blocks, int threads,
                              int shared_bytes, ulonglong2* words, const Chunks& chunks, cudaStream_t stream,
                              Arguments... arguments) {
  const int parts = chunks.of_group < blocks ? chunks.of_group : blocks;
  cudaMemsetAsync(words, 0xff, sizeof(ulonglong2) * chunks.groups * parts, stream);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  std::tuple<Parameters...> passed(arguments...);
  std::apply(
      [&](auto&... each) {
        void* pointers[] = {const_cast<void*>(static_cast<const void*>(&each))...};
        cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(threads), pointers,
                                    shared_bytes, stream);
      },
      passed);
  return launched(name);
}
