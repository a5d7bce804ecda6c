// Forward in one launch: a block owns a group (channels / groups neighbouring channels of one sample), reduces it to
// its moments, then normalises it while it may still lie in L2.

// Grid (samples * groups).
template <int kGroupWidth, int kRowWidth>
__global__ void __launch_bounds__(kThreads)
    normalise_groups(const Element* x, {% if shifted %}Shift shift, {% endif %}const Weight* weight, const Weight* bias, Shape shape, float eps,
                     Element* y, float* mean, float* rstd) {
  __shared__ Moments scratch[kMaxWarps];
  const int64_t channels_per_group = shape.channels / shape.groups;
  const int64_t group_length = channels_per_group * shape.spatial;
  for (int64_t group = blockIdx.x; group < shape.samples * shape.groups; group += gridDim.x) {
    const Element* group_x = x + group * group_length;
    Element* group_y = y + group * group_length;
    const Moments moments =
        moments_of_group<kGroupWidth, kRowWidth>(group_x, group_length, {% if shifted %}shift, {% endif %}shape, group, scratch);
    const float group_rstd = 1.0f / sqrtf(moments.m2 / static_cast<float>(group_length) + eps);
    if (threadIdx.x == 0) {
      mean[group] = moments.mean;
      rstd[group] = group_rstd;
    }
    const int64_t first_channel = group % shape.groups * channels_per_group;
    if (shape.spatial < kShortRow) {
      for (int64_t i = threadIdx.x; i < group_length; i += blockDim.x) {
        const int64_t channel = first_channel + i / shape.spatial;
        const Normalise normalise = { {%- if activated %}activate_of({% if shifted %}shift, {% endif %}channel), {% endif %}moments.mean, group_rstd * as_float(weight[channel]),
                                     as_float(bias[channel])};
        put(group_y + i, normalise(as_float(group_x[i])));
      }
      continue;
    }
    for (int64_t member = 0; member < channels_per_group; ++member) {
      const int64_t channel = first_channel + member;
      const Normalise normalise = { {%- if activated %}activate_of({% if shifted %}shift, {% endif %}channel), {% endif %}moments.mean, group_rstd * as_float(weight[channel]),
                                   as_float(bias[channel])};
      transform<kRowWidth>(group_x + member * shape.spatial, group_y + member * shape.spatial, shape.spatial,
                           normalise);
    }
  }
}

int64_t forward_scratch(const Shape&) { return 0; }

LaunchStatus launch_forward(const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Weight* weight, const Weight* bias,
                            const Shape& shape, float eps, Element* y, float* mean, float* rstd, float* /*scratch*/,
                            int device, void* stream_handle) {
  const int64_t group_length = shape.channels / shape.groups * shape.spatial;
  if (shape.samples == 0 || group_length == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const unsigned blocks = grid_for(shape.samples * shape.groups);
  const unsigned threads = threads_for(group_length, kThreads);
  if (reads_as_vectors(x, shape.spatial) && reads_as_vectors(y, shape.spatial)) {
    normalise_groups<kVectorWidth, kVectorWidth>
        <<<blocks, threads, 0, stream>>>(x, {% if shifted %}shift, {% endif %}weight, bias, shape, eps, y, mean, rstd);
  } else if (reads_as_vectors(x, group_length)) {
    normalise_groups<kVectorWidth, 1>
        <<<blocks, threads, 0, stream>>>(x, {% if shifted %}shift, {% endif %}weight, bias, shape, eps, y, mean, rstd);
  } else {
    normalise_groups<1, 1><<<blocks, threads, 0, stream>>>(x, {% if shifted %}shift, {% endif %}weight, bias, shape, eps, y, mean, rstd);
  }
  return launched("normalise_groups");
}
