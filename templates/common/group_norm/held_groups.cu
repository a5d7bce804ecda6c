// Forward of small groups in one launch and one pass: a team of threads reads a group once, and holds it in registers.

// The sum over a warp's lanes, in each of them.
template <typename T>
__device__ __forceinline__ T sum_of_lanes(T value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

namespace held {

constexpr int kMostHeld = 16;  // elements a thread
constexpr int kWide = 16 / sizeof(Element);
constexpr int kMostThreads = 1024;
constexpr int kWarpsPerBlock = 4;  // where a warp has a group to itself

// The sum over a team's threads, in each of them: over the block, or over a warp where a warp is the team.
template <bool kIsWarp>
__device__ inline float sum_of_team(float value, float* scratch) {
  value = sum_of_lanes(value);
  if constexpr (!kIsWarp) {
    const int lane = threadIdx.x % kWarpSize;
    __syncthreads();  // every warp has read what was summed before
    if (lane == 0) scratch[threadIdx.x / kWarpSize] = value;
    __syncthreads();
    value = sum_of_lanes(lane < static_cast<int>(blockDim.x) / kWarpSize ? scratch[lane] : 0.0f);
  }
  return value;
}

// Grid (groups), or (groups / kWarpsPerBlock) where a warp is a team. A group has at most kHeld elements a thread; with
// a kWidth of kWide rows are whole vectors.
template <int kHeld, int kWidth, bool kIsWarp>
__global__ void __launch_bounds__(kIsWarp ? kWarpsPerBlock * kWarpSize : kMostThreads)
    normalise_held_groups(const Element* x, const Weight* weight, const Weight* bias, Shape shape, float eps,
                          Element* y, float* mean, float* rstd, float* mean_low) {
  __shared__ float scratch[kMaxWarps];
  const int threads = kIsWarp ? kWarpSize : blockDim.x;
  const int thread = kIsWarp ? threadIdx.x % kWarpSize : threadIdx.x;
  const int64_t teams = kIsWarp ? static_cast<int64_t>(gridDim.x) * kWarpsPerBlock : gridDim.x;
  const int64_t first =
      kIsWarp ? static_cast<int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarpSize : blockIdx.x;
  const int channels_per_group = static_cast<int>(shape.channels / shape.groups);
  const unsigned spatial = static_cast<unsigned>(shape.spatial);
  const int length = channels_per_group * static_cast<int>(spatial);
  for (int64_t group = first; group < shape.samples * shape.groups; group += teams) {
    const Element* group_x = x + group * length;
    // Less the first element: sums of small numbers, wherever the mean is.
    const float around = as_float(group_x[0]);
    float held[kHeld];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeld; i += kWidth) {
      const int position = (i / kWidth * threads + thread) * kWidth;
      if (position < length) load_vector<kWidth>(group_x + position, held + i);
#pragma unroll
      for (int j = i; j < i + kWidth; ++j) {
        held[j] = position < length ? held[j] - around : 0.0f;
        sum += held[j];
      }
    }
    const float distance = sum_of_team<kIsWarp>(sum, scratch) / length;
    float m2 = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeld; i += kWidth) {
      const int position = (i / kWidth * threads + thread) * kWidth;
#pragma unroll
      for (int j = i; j < i + kWidth; ++j) {
        held[j] -= distance;
        if (position < length) m2 += held[j] * held[j];
      }
    }
    const float group_rstd = 1.0f / sqrtf(sum_of_team<kIsWarp>(m2, scratch) / length + eps);
    if (thread == 0) {
      mean[group] = around + distance;
      mean_low[group] = (around - mean[group]) + distance;
      rstd[group] = group_rstd;
    }
    const int64_t first_channel = group % shape.groups * channels_per_group;
#pragma unroll
    for (int i = 0; i < kHeld; i += kWidth) {
      const int position = (i / kWidth * threads + thread) * kWidth;
      if (position >= length) continue;
      const int64_t channel = first_channel + static_cast<unsigned>(position) / spatial;
      const float scale = group_rstd * as_float(weight[channel]);
      const float row_bias = as_float(bias[channel]);
#pragma unroll
      for (int j = i; j < i + kWidth; ++j) held[j] = fmaf(held[j], scale, row_bias);
      store_vector<kWidth>(y + group * length + position, held + i);
    }
  }
}

template <int kHeld, int kWidth>
LaunchStatus launch(const Element* x, const Weight* weight, const Weight* bias, const Shape& shape, float eps,
                    Element* y, float* mean, float* rstd, cudaStream_t stream) {
  const int64_t groups = shape.samples * shape.groups;
  float* mean_low = rstd + groups;
  const int64_t length = shape.channels / shape.groups * shape.spatial;
  if (length <= kHeld * kWarpSize) {
    normalise_held_groups<kHeld, kWidth, true>
        <<<grid_for(ceil_div(groups, kWarpsPerBlock)), kWarpsPerBlock * kWarpSize, 0, stream>>>(
            x, weight, bias, shape, eps, y, mean, rstd, mean_low);
  } else {
    const unsigned threads = static_cast<unsigned>(ceil_div(ceil_div(length, kHeld), kWarpSize) * kWarpSize);
    normalise_held_groups<kHeld, kWidth, false>
        <<<grid_for(groups), threads, 0, stream>>>(x, weight, bias, shape, eps, y, mean, rstd, mean_low);
  }
  return launched("normalise_held_groups");
}

LaunchStatus launch_forward(const Element* x, const Weight* weight, const Weight* bias, const Shape& shape, float eps,
                            Element* y, float* mean, float* rstd, cudaStream_t stream) {
  const int64_t length = shape.channels / shape.groups * shape.spatial;
  if (shape.samples == 0 || length == 0) return {nullptr, nullptr};
  const bool is_wide = reads_as_vectors(x, shape.spatial) && reads_as_vectors(y, shape.spatial);
  // Few elements a thread where there are threads enough: more of them wait for memory at the same time.
  if (length <= 4 * kMostThreads) {
    return is_wide ? launch<kWide, kWide>(x, weight, bias, shape, eps, y, mean, rstd, stream)
                   : launch<4, 1>(x, weight, bias, shape, eps, y, mean, rstd, stream);
  }
  return is_wide ? launch<kMostHeld, kWide>(x, weight, bias, shape, eps, y, mean, rstd, stream)
                 : launch<kMostHeld, 1>(x, weight, bias, shape, eps, y, mean, rstd, stream);
}

}  // namespace held
