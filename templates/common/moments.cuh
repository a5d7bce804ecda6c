// Mean and sum of squared deviations, merged pairwise (Chan, Golub and LeVeque 1979). Never E[x^2] - E[x]^2, which
// loses all digits of the variance where |mean| is much larger than the spread.

struct Moments {
  float count;
  float mean;
  float m2;  // sum of (x - mean)^2
};

struct MergeMoments {
  __device__ Moments operator()(const Moments& left, const Moments& right) const {
    const float count = left.count + right.count;
    const float share = count > 0.0f ? right.count / count : 0.0f;
    const float delta = right.mean - left.mean;
    return {count, left.mean + delta * share, left.m2 + right.m2 + delta * delta * left.count * share};
  }
};

__device__ inline Moments from_lane_above(const Moments& value, int offset) {
  return {__shfl_down_sync(kAllLanes, value.count, offset), __shfl_down_sync(kAllLanes, value.mean, offset),
          __shfl_down_sync(kAllLanes, value.m2, offset)};
}

// Two passes over values already in registers: one division a tile instead of one an element.
__device__ inline Moments moments_of(const float (&values)[kBatch]) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) sum += values[i];
  const float mean = sum / kBatch;
  float m2 = 0.0f;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) m2 += (values[i] - mean) * (values[i] - mean);
  return {static_cast<float>(kBatch), mean, m2};
}

// The moments of this thread's share of map(data[0 .. length)).
template <int kWidth, typename T, typename Map>
__device__ inline Moments thread_moments(const T* data, int64_t length, Map map) {
  const MergeMoments merge;
  Moments running = {0.0f, 0.0f, 0.0f};
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
    load_tile<kWidth>(data + start, values);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) values[i] = map(values[i]);
    running = merge(running, moments_of(values));
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    running = merge(running, Moments{1.0f, map(as_float(data[i])), 0.0f});
  }
  return running;
}

// The moments of map(data[0 .. length)), in every thread of the block.
template <int kWidth, typename T, typename Map>
__device__ inline Moments block_moments(const T* data, int64_t length, Moments* scratch, Map map) {
  return block_reduce(thread_moments<kWidth>(data, length, map), Moments{0.0f, 0.0f, 0.0f}, scratch, MergeMoments());
}
