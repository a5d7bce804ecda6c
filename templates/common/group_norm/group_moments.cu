// Where all channels are activated alike, a group is one stretch of memory.

// Grid (groups * parts): the moments of one part, or at once mean and rstd where a group is a single part.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    group_moments(const Element* x, {% if shifted %}Shift shift, {% endif %}int64_t groups, int64_t group_length, Parts parts, float eps,
                  Moments* moments, float* mean, float* rstd) {
  __shared__ Moments scratch[kMaxWarps];
  for (int64_t item = blockIdx.x; item < groups * parts.count; item += gridDim.x) {
    const int64_t group = item / parts.count;
    const int64_t begin = (item - group * parts.count) * parts.length;
    const int64_t left = group_length - begin;
    const int64_t length = left < parts.length ? left : parts.length;
    const Moments part =
        block_moments<kWidth>(x + group * group_length + begin, length, scratch{% if activated %}, activate_of({% if shifted %}shift, {% endif %}0){% endif %});
    if (threadIdx.x != 0) continue;
    if (parts.count == 1) {
      write_statistics(part, static_cast<float>(group_length), eps, mean + group, rstd + group);
    } else {
      moments[item] = part;
    }
  }
}

int64_t forward_scratch(const Shape& shape) {
  const int64_t parts = parts_of(shape.channels / shape.groups * shape.spatial).count;
  const int64_t floats_per_moment = sizeof(Moments) / sizeof(float);
  return parts == 1 ? 0 : shape.samples * shape.groups * parts * floats_per_moment;
}

LaunchStatus launch_statistics(const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Shape& shape, float eps, float* mean,
                               float* rstd, Moments* moments, cudaStream_t stream) {
  const int64_t groups = shape.samples * shape.groups;
  const int64_t group_length = shape.channels / shape.groups * shape.spatial;
  const Parts parts = parts_of(group_length);
  const unsigned blocks = grid_for(groups * parts.count);
  const unsigned threads = threads_for(group_length, kThreads);
  if (reads_as_vectors(x, group_length)) {
    group_moments<kVectorWidth>
        <<<blocks, threads, 0, stream>>>(x, {% if shifted %}shift, {% endif %}groups, group_length, parts, eps, moments, mean, rstd);
  } else {
    group_moments<1><<<blocks, threads, 0, stream>>>(x, {% if shifted %}shift, {% endif %}groups, group_length, parts, eps, moments, mean, rstd);
  }
  const LaunchStatus status = launched("group_moments");
  if (status.kernel != nullptr || parts.count == 1) return status;
  return launch_merge_moments(moments, shape, parts.count, eps, mean, rstd, stream);
}
