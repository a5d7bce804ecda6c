// Backward: sums over parts of each row, then the two means of each group, then dx, one block a tile of a row.

{% if bounds_dx %}
__device__ inline float from_lane_above(float value, int offset) { return __shfl_down_sync(kAllLanes, value, offset); }

struct Larger {
  __device__ float operator()(float left, float right) const { return larger(left, right); }
};

{% endif %}
struct GroupMeans {
  float dy;       // mean(dy * weight)
  float dy_xhat;  // mean(dy * weight * xhat)
{% if bounds_dx %}
  float bound;    // of |dx|
{% endif %}
};

// Grid (rows * parts).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    row_part_sums(const Element* dy, const Element* x, {% if shifted %}Shift shift, {% endif %}const float* mean, const float* rstd,
                  int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial, {% if pitched %}int64_t pitch, {% endif %}Parts parts,
                  RowSums* part_sums) {
  __shared__ RowSums scratch[kMaxWarps];
  for (int64_t item = blockIdx.x; item < rows * parts.count; item += gridDim.x) {
    const int64_t row = item / parts.count;
    const int64_t begin = (item - row * parts.count) * parts.length;
    const int64_t left = spatial - begin;
    const int64_t length = left < parts.length ? left : parts.length;
    const int64_t group = row / channels_per_group;
    const int64_t offset = row * spatial + begin;
{% if activated %}
    const Activate activate = activate_of({% if shifted %}shift, {% endif %}row % channels);
{% endif %}
    const RowSums sums =
        block_row_sums<kWidth>(dy + offset, x + {{ "row * pitch + begin" if pitched else "offset" }}, length, {% if activated %}activate, {% endif %}mean[group], rstd[group], scratch);
    if (threadIdx.x == 0) part_sums[item] = sums;
  }
}

// One thread a row, for short rows.
__global__ void __launch_bounds__(kThreads)
    short_row_sums(const Element* dy, const Element* x, {% if shifted %}Shift shift, {% endif %}const float* mean, const float* rstd,
                   int64_t rows, int64_t channels, int64_t channels_per_group, int64_t spatial, RowSums* row_sums) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row < rows; row += stride) {
    const int64_t group = row / channels_per_group;
    row_sums[row] = thread_row_sums(dy + row * spatial, x + row * spatial, spatial,{{ " activate_of(" + ("shift, " if shifted else "") + "row % channels)," if activated else "" }}
                                    mean[group], rstd[group]);
  }
}

// Grid (groups): adds each row's parts in order, and the rows of the group into its means.
__global__ void __launch_bounds__(kThreads)
    group_means(const RowSums* part_sums, const Weight* weight, {% if bounds_dx %}const float* rstd, {% endif %}int64_t groups, int64_t channels,
                int64_t channels_per_group, int64_t spatial, int64_t parts, RowSums* row_sums, GroupMeans* means) {
  __shared__ double scratch[kMaxWarps];
{% if bounds_dx %}
  __shared__ float largest_scratch[kMaxWarps];
{% endif %}
  for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    double group_dy = 0.0;
    double group_dy_xhat = 0.0;
{% if bounds_dx %}
    float largest = 0.0f;
{% endif %}
    for (int64_t member = threadIdx.x; member < channels_per_group; member += blockDim.x) {
      const int64_t row = group * channels_per_group + member;
      double row_dy = 0.0;
      double row_dy_xhat = 0.0;
{% if bounds_dx %}
      float row_largest = 0.0f;
{% endif %}
      for (int64_t part = 0; part < parts; ++part) {
        const RowSums sums = part_sums[row * parts + part];
        row_dy += sums.dy;
        row_dy_xhat += sums.dy_xhat;
{% if bounds_dx %}
        row_largest = larger(row_largest, sums.largest);
{% endif %}
      }
      row_sums[row] = {static_cast<float>(row_dy), static_cast<float>(row_dy_xhat){{ ", row_largest" if bounds_dx else "" }}};
      const double row_weight = as_float(weight[row % channels]);
      group_dy += row_weight * row_dy;
      group_dy_xhat += row_weight * row_dy_xhat;
{% if bounds_dx %}
      largest = larger(largest, row_largest * fabsf(as_float(weight[row % channels])));
{% endif %}
    }
    group_dy = block_reduce(group_dy, 0.0, scratch, AddDoubles());
    group_dy_xhat = block_reduce(group_dy_xhat, 0.0, scratch, AddDoubles());
    const double group_length = static_cast<double>(channels_per_group * spatial);
{% if bounds_dx %}
    largest = block_reduce(largest, 0.0f, largest_scratch, Larger());
    // |xhat| is at most the root of the group's length, and GELU's slope 1.13.
    const float mean_dy = static_cast<float>(group_dy / group_length);
    const float mean_dy_xhat = static_cast<float>(group_dy_xhat / group_length);
    const float most = largest + fabsf(mean_dy) + sqrtf(static_cast<float>(group_length)) * fabsf(mean_dy_xhat);
    if (threadIdx.x == 0) means[group] = {mean_dy, mean_dy_xhat, 1.2f * rstd[group] * most};
{% else %}
    if (threadIdx.x == 0) {
      means[group] = {static_cast<float>(group_dy / group_length), static_cast<float>(group_dy_xhat / group_length)};
    }
{% endif %}
  }
}

// Grid (rows * tiles).{{ " `dx_sums`: of each tile." if sums_dx else "" }}
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    input_gradient_rows(const Element* dy, const Element* x, {% if shifted %}Shift shift, {% endif %}const Weight* weight, const float* mean,
                        const float* rstd, const GroupMeans* means, int64_t rows, int64_t channels,
                        int64_t channels_per_group, int64_t spatial, Parts tiles, Element* dx{% if sums_dx %}, float* dx_sums{% endif %}) {
{% if sums_dx %}
  __shared__ double scratch[kMaxWarps];
{% endif %}
  for (int64_t item = blockIdx.x; item < rows * tiles.count; item += gridDim.x) {
    const int64_t row = item / tiles.count;
    const int64_t begin = (item - row * tiles.count) * tiles.length;
    const int64_t left = spatial - begin;
    const int64_t length = left < tiles.length ? left : tiles.length;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const InputGradient gradient = { {%- if activated %}activate_of({% if shifted %}shift, {% endif %}channel), {% endif %}mean[group],     rstd[group],
                                    as_float(weight[channel]),   means[group].dy, means[group].dy_xhat};
    const int64_t offset = row * spatial + begin;
{% if sums_dx %}
    differentiate<kWidth>(dy + offset, x + offset, dx + offset, length, gradient, scratch, dx_sums, item);
{% else %}
    transform<kWidth>(dy + offset, x + offset, dx + offset, length, gradient);
{% endif %}
  }
}

// One thread an element, for short rows.
__global__ void __launch_bounds__(kThreads)
    input_gradient_elements(const Element* dy, const Element* x, {% if shifted %}Shift shift, {% endif %}const Weight* weight, const float* mean,
                            const float* rstd, const GroupMeans* means, int64_t rows, int64_t channels,
                            int64_t channels_per_group, int64_t spatial, Element* dx) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < rows * spatial; i += stride) {
    const int64_t row = i / spatial;
    const int64_t channel = row % channels;
    const int64_t group = row / channels_per_group;
    const InputGradient gradient = { {%- if activated %}activate_of({% if shifted %}shift, {% endif %}channel), {% endif %}mean[group],     rstd[group],
                                    as_float(weight[channel]),   means[group].dy, means[group].dy_xhat};
    put(dx + i, gradient(as_float(dy[i]), as_float(x[i])));
  }
}

int64_t backward_scratch(const Shape& shape) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t floats_per_pair = {{ 3 if bounds_dx else 2 }};  // of RowSums and of GroupMeans
  const int64_t pairs = rows + rows * row_parts(shape.spatial).count + shape.samples * shape.groups;
  return floats_per_pair * pairs{% if sums_dx %} + rows * tiles_of(shape.spatial).count{% endif %};
}

LaunchStatus launch_row_sums(const Element* dy, const Element* x, {% if shifted %}const Shift& shift, {% endif %}const float* mean,
                             const float* rstd, const Shape& shape, RowSums* part_sums, cudaStream_t stream) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t channels_per_group = shape.channels / shape.groups;
  if (shape.spatial < kShortRow) {
    const unsigned blocks = grid_for(ceil_div(rows, kThreads));
    short_row_sums<<<blocks, kThreads, 0, stream>>>(dy, x, {% if shifted %}shift, {% endif %}mean, rstd, rows, shape.channels, channels_per_group,
                                                    shape.spatial, part_sums);
    return launched("short_row_sums");
  }
  const Parts parts = row_parts(shape.spatial);
  const unsigned blocks = grid_for(rows * parts.count);
  const unsigned threads = threads_for(shape.spatial, kThreads);
  if (reads_as_vectors(dy, shape.spatial) && reads_as_vectors(x, shape.spatial)) {
    row_part_sums<kVectorWidth><<<blocks, threads, 0, stream>>>(dy, x, {% if shifted %}shift, {% endif %}mean, rstd, rows, shape.channels,
                                                                channels_per_group, shape.spatial, {% if pitched %}shape.pitch, {% endif %}parts, part_sums);
  } else {
    row_part_sums<1><<<blocks, threads, 0, stream>>>(dy, x, {% if shifted %}shift, {% endif %}mean, rstd, rows, shape.channels, channels_per_group,
                                                     shape.spatial, {% if pitched %}shape.pitch, {% endif %}parts, part_sums);
  }
  return launched("row_part_sums");
}

LaunchStatus launch_input_gradient(const Element* dy, const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Weight* weight,
                                   const float* mean, const float* rstd, const GroupMeans* means, const Shape& shape,
                                   Element* dx, {% if sums_dx %}float* dx_sums, {% endif %}cudaStream_t stream) {
  const int64_t rows = shape.samples * shape.channels;
  const int64_t channels_per_group = shape.channels / shape.groups;
  if (shape.spatial < kShortRow) {
    const unsigned blocks = grid_for(ceil_div(rows * shape.spatial, kThreads));
    input_gradient_elements<<<blocks, kThreads, 0, stream>>>(dy, x, {% if shifted %}shift, {% endif %}weight, mean, rstd, means, rows,
                                                             shape.channels, channels_per_group, shape.spatial, dx);
    return launched("input_gradient_elements");
  }
  const Parts tiles = tiles_of(shape.spatial);
  const unsigned blocks = grid_for(rows * tiles.count);
  const unsigned threads = threads_for(shape.spatial, kThreads);
  if (reads_as_vectors(dy, shape.spatial) && reads_as_vectors(x, shape.spatial) &&
      reads_as_vectors(dx, shape.spatial)) {
    input_gradient_rows<kVectorWidth><<<blocks, threads, 0, stream>>>(dy, x, {% if shifted %}shift, {% endif %}weight, mean, rstd, means, rows,
                                                                      shape.channels, channels_per_group, shape.spatial,
                                                                      tiles, dx{% if sums_dx %}, dx_sums{% endif %});
  } else {
    input_gradient_rows<1><<<blocks, threads, 0, stream>>>(dy, x, {% if shifted %}shift, {% endif %}weight, mean, rstd, means, rows,
                                                           shape.channels, channels_per_group, shape.spatial, tiles,
                                                           dx{% if sums_dx %}, dx_sums{% endif %});
  }
  return launched("input_gradient_rows");
}

LaunchStatus launch_means(const Element* dy, const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Weight* weight,
                          const float* mean, const float* rstd, const Shape& shape, RowSums* row_sums,
                          RowSums* part_sums, GroupMeans* means, cudaStream_t stream) {
  const int64_t groups = shape.samples * shape.groups;
  const int64_t channels_per_group = shape.channels / shape.groups;
  const LaunchStatus status = launch_row_sums(dy, x, {% if shifted %}shift, {% endif %}mean, rstd, shape, part_sums, stream);
  if (status.kernel != nullptr) return status;
  group_means<<<grid_for(groups), threads_for(4 * channels_per_group, kThreads), 0, stream>>>(
      part_sums, weight, {% if bounds_dx %}rstd, {% endif %}groups, shape.channels, channels_per_group, shape.spatial,
      row_parts(shape.spatial).count, row_sums, means);
  return launched("group_means");
}

LaunchStatus launch_backward(const Element* dy, const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Weight* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const int64_t groups = shape.samples * shape.groups;
  const int64_t rows = shape.samples * shape.channels;
  const int64_t parts = row_parts(shape.spatial).count;
  RowSums* row_sums = reinterpret_cast<RowSums*>(scratch);
  RowSums* part_sums = row_sums + rows;
  GroupMeans* means = reinterpret_cast<GroupMeans*>(part_sums + rows * parts);
{% if sums_dx %}
  float* dx_sums = reinterpret_cast<float*>(means + groups);
{% endif %}
  if (groups > 0) {
    LaunchStatus status =
        launch_means(dy, x, {% if shifted %}shift, {% endif %}weight, mean, rstd, shape, row_sums, part_sums, means, stream);
    if (status.kernel != nullptr) return status;
    if (gradients.x != nullptr && shape.spatial > 0) {
      status = launch_input_gradient(dy, x, {% if shifted %}shift, {% endif %}weight, mean, rstd, means, shape, gradients.x, {% if sums_dx %}dx_sums, {% endif %}stream);
      if (status.kernel != nullptr) return status;
    }
  }
{% if sums_dx %}
  if (gradients.shift != nullptr) {
    const LaunchStatus status =
        launch_shift_gradient(gradients.x, dx_sums, shape, tiles_of(shape.spatial).count, gradients.shift, stream);
    if (status.kernel != nullptr) return status;
  }
{% endif %}
  return launch_affine_gradients(row_sums, shape, gradients.weight, gradients.bias, stream);
}
