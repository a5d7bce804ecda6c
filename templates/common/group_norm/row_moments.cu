// Where channels are activated each in its own way: the moments of every row, in parts.

// Grid (rows * parts).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    row_moments(const Element* x, {% if shifted %}Shift shift, {% endif %}int64_t rows, int64_t channels, int64_t spatial, Parts parts,
                Moments* moments) {
  __shared__ Moments scratch[kMaxWarps];
  for (int64_t item = blockIdx.x; item < rows * parts.count; item += gridDim.x) {
    const int64_t row = item / parts.count;
    const int64_t begin = (item - row * parts.count) * parts.length;
    const int64_t left = spatial - begin;
    const int64_t length = left < parts.length ? left : parts.length;
{% if activated %}
    const Activate activate = activate_of({% if shifted %}shift, {% endif %}row % channels);
{% endif %}
    const Moments part = block_moments<kWidth>(x + row * spatial + begin, length, scratch, activate);
    if (threadIdx.x == 0) moments[item] = part;
  }
}

// One thread a row, for short rows.
__global__ void __launch_bounds__(kThreads)
    short_row_moments(const Element* x, {% if shifted %}Shift shift, {% endif %}int64_t rows, int64_t channels, int64_t spatial,
                      Moments* moments) {
  const MergeMoments merge;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row < rows; row += stride) {
{% if activated %}
    const Activate activate = activate_of({% if shifted %}shift, {% endif %}row % channels);
{% endif %}
    Moments running = {0.0f, 0.0f, 0.0f};
    for (int64_t i = 0; i < spatial; ++i) {
      running = merge(running, Moments{1.0f, {{ "activate(as_float(x[row * spatial + i]))" if activated else "as_float(x[row * spatial + i])" }}, 0.0f});
    }
    moments[row] = running;
  }
}

int64_t forward_scratch(const Shape& shape) {
  const int64_t floats_per_moment = sizeof(Moments) / sizeof(float);
  return shape.samples * shape.channels * row_parts(shape.spatial).count * floats_per_moment;
}

LaunchStatus launch_statistics(const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Shape& shape, float eps, float* mean,
                               float* rstd, Moments* moments, cudaStream_t stream) {
  const int64_t rows = shape.samples * shape.channels;
  const Parts parts = row_parts(shape.spatial);
  LaunchStatus status = {nullptr, nullptr};
  if (shape.spatial < kShortRow) {
    const unsigned blocks = grid_for(ceil_div(rows, kThreads));
    short_row_moments<<<blocks, kThreads, 0, stream>>>(x, {% if shifted %}shift, {% endif %}rows, shape.channels, shape.spatial, moments);
    status = launched("short_row_moments");
  } else {
    const unsigned blocks = grid_for(rows * parts.count);
    const unsigned threads = threads_for(shape.spatial, kThreads);
    if (reads_as_vectors(x, shape.spatial)) {
      row_moments<kVectorWidth>
          <<<blocks, threads, 0, stream>>>(x, {% if shifted %}shift, {% endif %}rows, shape.channels, shape.spatial, parts, moments);
    } else {
      row_moments<1><<<blocks, threads, 0, stream>>>(x, {% if shifted %}shift, {% endif %}rows, shape.channels, shape.spatial, parts, moments);
    }
    status = launched("row_moments");
  }
  if (status.kernel != nullptr) return status;
  return launch_merge_moments(moments, shape, shape.channels / shape.groups * parts.count, eps, mean, rstd, stream);
}
