// Backward in one launch and a small one: a block owns a group, sums each of its rows, and turns the sums into dx
// while the rows may still lie in L2. The affine gradients are then sums over the samples.

// Grid (samples * groups). `dx` may be null: only the row sums are wanted.{{ " `dx_sums`: of each row." if sums_dx else "" }}
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    group_gradients(const Element* dy, const Element* x, {% if shifted %}Shift shift, {% endif %}const Weight* weight, const float* mean,
                    const float* rstd, Shape shape, RowSums* row_sums, Element* dx{% if sums_dx %}, float* dx_sums{% endif %}) {
  __shared__ RowSums row_scratch[kMaxWarps];
  __shared__ double group_scratch[kMaxWarps];
  const int64_t channels_per_group = shape.channels / shape.groups;
  const int64_t group_length = channels_per_group * shape.spatial;
  for (int64_t group = blockIdx.x; group < shape.samples * shape.groups; group += gridDim.x) {
    const Element* group_dy = dy + group * group_length;
    const Element* group_x = x + group * group_length;
    RowSums* group_rows = row_sums + group * channels_per_group;
    const int64_t first_channel = group % shape.groups * channels_per_group;
    const Weight* group_weight = weight + first_channel;
    const float group_mean = mean[group];
    const float group_rstd = rstd[group];

    // This thread's share of sum(dy * weight) and sum(dy * weight * xhat) over the group.
    double share_dy = 0.0;
    double share_dy_xhat = 0.0;
    if (shape.spatial < kShortRow) {
      for (int64_t member = threadIdx.x; member < channels_per_group; member += blockDim.x) {
        const int64_t start = member * shape.spatial;
{% if activated %}
        const Activate activate = activate_of({% if shifted %}shift, {% endif %}first_channel + member);
{% endif %}
        const RowSums sums =
            thread_row_sums(group_dy + start, group_x + start, shape.spatial, {% if activated %}activate, {% endif %}group_mean, group_rstd);
        group_rows[member] = sums;
        share_dy += static_cast<double>(as_float(group_weight[member])) * sums.dy;
        share_dy_xhat += static_cast<double>(as_float(group_weight[member])) * sums.dy_xhat;
      }
    } else {
      for (int64_t member = 0; member < channels_per_group; ++member) {
        const int64_t start = member * shape.spatial;
{% if activated %}
        const Activate activate = activate_of({% if shifted %}shift, {% endif %}first_channel + member);
{% endif %}
        const RowSums sums = block_row_sums<kWidth>(group_dy + start, group_x + start, shape.spatial,{{ " activate," if activated else "" }}
                                                    group_mean, group_rstd, row_scratch);
        if (threadIdx.x != 0) continue;
        group_rows[member] = sums;
        share_dy += static_cast<double>(as_float(group_weight[member])) * sums.dy;
        share_dy_xhat += static_cast<double>(as_float(group_weight[member])) * sums.dy_xhat;
      }
    }
    if (dx == nullptr) continue;

    const double length = static_cast<double>(group_length);
    const float mean_dy = static_cast<float>(block_reduce(share_dy, 0.0, group_scratch, AddDoubles()) / length);
    const float mean_dy_xhat =
        static_cast<float>(block_reduce(share_dy_xhat, 0.0, group_scratch, AddDoubles()) / length);
    Element* group_dx = dx + group * group_length;
    if (shape.spatial < kShortRow) {
      for (int64_t i = threadIdx.x; i < group_length; i += blockDim.x) {
        const int64_t member = i / shape.spatial;
        const InputGradient gradient = { {%- if activated %}activate_of({% if shifted %}shift, {% endif %}first_channel + member), {% endif %}group_mean,
                                        group_rstd,
                                        as_float(group_weight[member]),
                                        mean_dy,
                                        mean_dy_xhat};
        put(group_dx + i, gradient(as_float(group_dy[i]), as_float(group_x[i])));
      }
      continue;
    }
    for (int64_t member = 0; member < channels_per_group; ++member) {
      const int64_t start = member * shape.spatial;
      const InputGradient gradient = { {%- if activated %}activate_of({% if shifted %}shift, {% endif %}first_channel + member), {% endif %}group_mean,
                                      group_rstd,
                                      as_float(group_weight[member]),
                                      mean_dy,
                                      mean_dy_xhat};
{% if sums_dx %}
      differentiate<kWidth>(group_dy + start, group_x + start, group_dx + start, shape.spatial, gradient, group_scratch,
                            dx_sums, group * channels_per_group + member);
{% else %}
      transform<kWidth>(group_dy + start, group_x + start, group_dx + start, shape.spatial, gradient);
{% endif %}
    }
  }
}

int64_t backward_scratch(const Shape& shape) {
  const int64_t floats_a_row = sizeof(RowSums) / sizeof(float){% if sums_dx %} + 1{% endif %};
  return shape.samples * shape.channels * floats_a_row;
}

LaunchStatus launch_backward(const Element* dy, const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Weight* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  RowSums* row_sums = reinterpret_cast<RowSums*>(scratch);
{% if sums_dx %}
  float* dx_sums = reinterpret_cast<float*>(row_sums + shape.samples * shape.channels);
{% endif %}
  Element* dx = gradients.x;
  const int64_t groups = shape.samples * shape.groups;
  if (groups > 0) {
    const unsigned threads = threads_for(shape.channels / shape.groups * shape.spatial, kThreads);
    if (reads_as_vectors(dy, shape.spatial) && reads_as_vectors(x, shape.spatial) &&
        reads_as_vectors(dx, shape.spatial)) {
      group_gradients<kVectorWidth>
          <<<grid_for(groups), threads, 0, stream>>>(dy, x, {% if shifted %}shift, {% endif %}weight, mean, rstd, shape, row_sums, dx{% if sums_dx %}, dx_sums{% endif %});
    } else {
      group_gradients<1>
          <<<grid_for(groups), threads, 0, stream>>>(dy, x, {% if shifted %}shift, {% endif %}weight, mean, rstd, shape, row_sums, dx{% if sums_dx %}, dx_sums{% endif %});
    }
    const LaunchStatus status = launched("group_gradients");
    if (status.kernel != nullptr) return status;
  }
{% if sums_dx %}
  if (gradients.shift != nullptr) {
    const LaunchStatus status = launch_shift_gradient(dx, dx_sums, shape, 1, gradients.shift, stream);
    if (status.kernel != nullptr) return status;
  }
{% endif %}
  return launch_affine_gradients(row_sums, shape, gradients.weight, gradients.bias, stream);
}
