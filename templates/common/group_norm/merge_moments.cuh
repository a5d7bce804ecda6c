// Statistics of groups whose moments lie in memory, in parts.

__device__ inline void write_statistics(const Moments& group, float group_length, float eps, float* mean, float* rstd) {
  *mean = group.mean;
  *rstd = 1.0f / sqrtf(group.m2 / group_length + eps);
}

// Grid (groups), one warp: merges a group's parts.
__global__ void merge_moments(const Moments* moments, int64_t groups, int64_t group_length, int64_t parts, float eps,
                              float* mean, float* rstd) {
  const MergeMoments merge;
  for (int64_t group = blockIdx.x; group < groups; group += gridDim.x) {
    Moments running = {0.0f, 0.0f, 0.0f};
    for (int64_t part = threadIdx.x; part < parts; part += kWarpSize) {
      running = merge(running, moments[group * parts + part]);
    }
    running = warp_reduce(running, merge);
    if (threadIdx.x == 0) {
      write_statistics(running, static_cast<float>(group_length), eps, mean + group, rstd + group);
    }
  }
}

LaunchStatus launch_merge_moments(const Moments* moments, const Shape& shape, int64_t parts, float eps, float* mean,
                                  float* rstd, cudaStream_t stream) {
  const int64_t groups = shape.samples * shape.groups;
  const int64_t group_length = shape.channels / shape.groups * shape.spatial;
  merge_moments<<<grid_for(groups), kWarpSize, 0, stream>>>(moments, groups, group_length, parts, eps, mean, rstd);
  return launched("merge_moments");
}
