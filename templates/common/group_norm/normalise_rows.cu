// Every row normalised by its group's statistics, one block a tile.

// Grid (rows * tiles).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    normalise_rows(const Element* x, {% if shifted %}Shift shift, {% endif %}const Weight* weight, const Weight* bias, const float* mean,
                   const float* rstd, int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial,
                   {% if pitched %}int64_t pitch, {% endif %}Parts tiles, Element* y) {
  for (int64_t item = blockIdx.x; item < rows * tiles.count; item += gridDim.x) {
    const int64_t row = item / tiles.count;
    const int64_t begin = (item - row * tiles.count) * tiles.length;
    const int64_t left = spatial - begin;
    const int64_t length = left < tiles.length ? left : tiles.length;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const Normalise normalise = { {%- if activated %}activate_of({% if shifted %}shift, {% endif %}channel), {% endif %}mean[group], rstd[group] * as_float(weight[channel]),
                                 as_float(bias[channel])};
    const int64_t offset = row * spatial + begin;
    transform<kWidth>(x + {{ "row * pitch + begin" if pitched else "offset" }}, y + offset, length, normalise);
  }
}

// One thread an element, for short rows.
__global__ void __launch_bounds__(kThreads)
    normalise_elements(const Element* x, {% if shifted %}Shift shift, {% endif %}const Weight* weight, const Weight* bias, const float* mean,
                       const float* rstd, int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial,
                       Element* y) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * spatial; i += stride) {
    const int64_t row = i / spatial;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const Normalise normalise = { {%- if activated %}activate_of({% if shifted %}shift, {% endif %}channel), {% endif %}mean[group], rstd[group] * as_float(weight[channel]),
                                 as_float(bias[channel])};
    put(y + i, normalise(as_float(x[i])));
  }
}

LaunchStatus launch_normalise(const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Weight* weight, const Weight* bias,
                              const float* mean, const float* rstd, const Shape& shape, Element* y,
                              cudaStream_t stream) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t channels_per_group = shape.channels / shape.groups;
  if (shape.spatial < kShortRow) {
    const unsigned blocks = grid_for(ceil_div(rows * shape.spatial, kThreads));
    normalise_elements<<<blocks, kThreads, 0, stream>>>(x, {% if shifted %}shift, {% endif %}weight, bias, mean, rstd, rows, shape.channels,
                                                        channels_per_group, shape.spatial, y);
    return launched("normalise_elements");
  }
  const Parts tiles = tiles_of(shape.spatial);
  const unsigned blocks = grid_for(rows * tiles.count);
  const unsigned threads = threads_for(shape.spatial, kThreads);
  if (reads_as_vectors(x, shape.spatial) && reads_as_vectors(y, shape.spatial)) {
    normalise_rows<kVectorWidth><<<blocks, threads, 0, stream>>>(
        x, {% if shifted %}shift, {% endif %}weight, bias, mean, rstd, rows, shape.channels, channels_per_group, shape.spatial, {% if pitched %}shape.pitch, {% endif %}tiles, y);
  } else {
    normalise_rows<1><<<blocks, threads, 0, stream>>>(x, {% if shifted %}shift, {% endif %}weight, bias, mean, rstd, rows, shape.channels,
                                                      channels_per_group, shape.spatial, {% if pitched %}shape.pitch, {% endif %}tiles, y);
  }
  return launched("normalise_rows");
}
