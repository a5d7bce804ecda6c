// Tiles of kBatch floats a thread, held in registers: all loads of a tile are in flight before the first is used.
// Within a tile, thread t owns the vectors t, t + blockDim.x, t + 2 blockDim.x, ... so that warps read whole lines.

template <int kWidth>
__device__ inline void load_vector(const float* source, float* values) {
  if constexpr (kWidth == 4) {
    const float4 packed = *reinterpret_cast<const float4*>(source);
    values[0] = packed.x;
    values[1] = packed.y;
    values[2] = packed.z;
    values[3] = packed.w;
  } else {
    values[0] = *source;
  }
}

template <int kWidth>
__device__ inline void store_vector(float* target, const float* values) {
  if constexpr (kWidth == 4) {
    *reinterpret_cast<float4*>(target) = make_float4(values[0], values[1], values[2], values[3]);
  } else {
    *target = values[0];
  }
}

template <int kWidth>
__device__ inline void load_tile(const float* tile, float (&values)[kBatch]) {
#pragma unroll
  for (int vector = 0; vector < kBatch / kWidth; ++vector) {
    const int64_t position = (static_cast<int64_t>(vector) * blockDim.x + threadIdx.x) * kWidth;
    load_vector<kWidth>(tile + position, values + vector * kWidth);
  }
}

template <int kWidth>
__device__ inline void store_tile(float* tile, const float (&values)[kBatch]) {
#pragma unroll
  for (int vector = 0; vector < kBatch / kWidth; ++vector) {
    const int64_t position = (static_cast<int64_t>(vector) * blockDim.x + threadIdx.x) * kWidth;
    store_vector<kWidth>(tile + position, values + vector * kWidth);
  }
}

// The elements, out of `length`, that whole tiles of this block cover; the rest is walked one by one.
__device__ inline int64_t tiled_length(int64_t length) {
  const int64_t tile = static_cast<int64_t>(blockDim.x) * kBatch;
  return length / tile * tile;
}

// target[i] = map(source[i]) for i < length, by the whole block.
template <int kWidth, typename Map>
__device__ inline void transform(const float* source, float* target, int64_t length, Map map) {
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
    load_tile<kWidth>(source + start, values);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) values[i] = map(values[i]);
    store_tile<kWidth>(target + start, values);
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) target[i] = map(source[i]);
}

// target[i] = map(first[i], second[i]) for i < length, by the whole block.
template <int kWidth, typename Map>
__device__ inline void transform(const float* first, const float* second, float* target, int64_t length, Map map) {
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
    float others[kBatch];
    load_tile<kWidth>(first + start, values);
    load_tile<kWidth>(second + start, others);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) values[i] = map(values[i], others[i]);
    store_tile<kWidth>(target + start, values);
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) target[i] = map(first[i], second[i]);
}
