// dz in full, for products that know nothing of its zeros.

// Grid (strips of columns * rows).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    spread_groups(const int* __restrict__ columns, const float* __restrict__ group_dz, Shape shape,
                  float* __restrict__ dz) {
  const int64_t length = shape.columns / shape.groups;
  const int64_t strips = (shape.columns + blockDim.x * kWidth - 1) / (blockDim.x * kWidth);
  for (int64_t item = blockIdx.x; item < strips * shape.rows; item += gridDim.x) {
    const int64_t column = (item % strips * blockDim.x + threadIdx.x) * kWidth;
    const int64_t row = item / strips;
    if (column >= shape.columns) continue;
    const int64_t within = column - columns[row] / length * length;  // of the group, where it lies in it
    float values[kWidth] = {};
    if (within >= 0 && within < length) load_vector<kWidth>(group_dz + row * length + within, values);
    store_vector<kWidth>(dz + row * shape.columns + column, values);
  }
}

LaunchStatus launch_spread(const Winners& winners, const Workspace& workspace, const Shape& shape, float* dz,
                           int device, void* stream_handle) {
  if (shape.rows == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const int64_t length = shape.columns / shape.groups;
  const unsigned threads = threads_for(shape.columns, kThreads);
  if (reads_as_vectors(workspace.dz, length) && reads_as_vectors(dz, length)) {
    const int64_t strips = ceil_div(shape.columns, static_cast<int64_t>(threads) * 4);
    spread_groups<4>
        <<<grid_for(strips * shape.rows), threads, 0, stream>>>(winners.columns, workspace.dz, shape, dz);
  } else {
    const int64_t strips = ceil_div(shape.columns, threads);
    spread_groups<1>
        <<<grid_for(strips * shape.rows), threads, 0, stream>>>(winners.columns, workspace.dz, shape, dz);
  }
  return launched("spread_groups");
}
