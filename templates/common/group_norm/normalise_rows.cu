// Every row normalised by its group's statistics, one block a tile.

// Grid (rows * tiles).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    normalise_rows(const float* x, Shift shift, const float* weight, const float* bias, const float* mean,
                   const float* rstd, int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial,
                   Parts tiles, float* y) {
  for (int64_t item = blockIdx.x; item < rows * tiles.count; item += gridDim.x) {
    const int64_t row = item / tiles.count;
    const int64_t begin = (item - row * tiles.count) * tiles.length;
    const int64_t left = spatial - begin;
    const int64_t length = left < tiles.length ? left : tiles.length;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const Normalise normalise = {activate_of(shift, channel), mean[group], rstd[group] * weight[channel],
                                 bias[channel]};
    const int64_t offset = row * spatial + begin;
    transform<kWidth>(x + offset, y + offset, length, normalise);
  }
}

// One thread an element, for short rows.
__global__ void __launch_bounds__(kThreads)
    normalise_elements(const float* x, Shift shift, const float* weight, const float* bias, const float* mean,
                       const float* rstd, int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial,
                       float* y) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * spatial; i += stride) {
    const int64_t row = i / spatial;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const Normalise normalise = {activate_of(shift, channel), mean[group], rstd[group] * weight[channel],
                                 bias[channel]};
    y[i] = normalise(x[i]);
  }
}

LaunchStatus launch_normalise(const float* x, const Shift& shift, const float* weight, const float* bias,
                              const float* mean, const float* rstd, const Shape& shape, float* y, cudaStream_t stream) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t channels_per_group = shape.channels / shape.groups;
  if (shape.spatial < kShortRow) {
    const unsigned blocks = grid_for(ceil_div(rows * shape.spatial, kThreads));
    normalise_elements<<<blocks, kThreads, 0, stream>>>(x, shift, weight, bias, mean, rstd, rows, shape.channels,
                                                        channels_per_group, shape.spatial, y);
    return launched("normalise_elements");
  }
  const Parts tiles = tiles_of(shape.spatial);
  const unsigned blocks = grid_for(rows * tiles.count);
  const unsigned threads = threads_for(shape.spatial, kThreads);
  if (reads_as_float4(x, shape.spatial) && reads_as_float4(y, shape.spatial)) {
    normalise_rows<kVectorWidth><<<blocks, threads, 0, stream>>>(
        x, shift, weight, bias, mean, rstd, rows, shape.channels, channels_per_group, shape.spatial, tiles, y);
  } else {
    normalise_rows<1><<<blocks, threads, 0, stream>>>(x, shift, weight, bias, mean, rstd, rows, shape.channels,
                                                      channels_per_group, shape.spatial, tiles, y);
  }
  return launched("normalise_rows");
}
