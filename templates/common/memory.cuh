// Tiles of kBatch elements a thread, held in registers as floats: all loads of a tile are in flight before the first is
// used. Within a tile, thread t owns the vectors t, t + blockDim.x, t + 2 blockDim.x, ... so that warps read whole lines.

template <int kWidth, typename T>
__device__ inline void load_tile(const T* tile, float (&values)[kBatch]) {
#pragma unroll
  for (int vector = 0; vector < kBatch / kWidth; ++vector) {
    const int64_t position = (static_cast<int64_t>(vector) * blockDim.x + threadIdx.x) * kWidth;
    load_vector<kWidth>(tile + position, values + vector * kWidth);
  }
}

{% if pitched %}
// Writes what nobody reads soon: L2 gives it to memory first.
template <int kWidth>
__device__ __forceinline__ void store_vector_once(float* target, const float* values) {
  if constexpr (kWidth == 4) __stcs(reinterpret_cast<float4*>(target), Format<float>::packed(values));
  else store_vector<kWidth>(target, values);
}

{% endif %}
template <int kWidth, typename T>
__device__ inline void store_tile(T* tile, const float (&values)[kBatch]) {
#pragma unroll
  for (int vector = 0; vector < kBatch / kWidth; ++vector) {
    const int64_t position = (static_cast<int64_t>(vector) * blockDim.x + threadIdx.x) * kWidth;
{% if pitched %}
    store_vector_once<kWidth>(tile + position, values + vector * kWidth);
{% else %}
    store_vector<kWidth>(tile + position, values + vector * kWidth);
{% endif %}
  }
}

// target[i] = map(source[i]) for i < length, by the whole block.
template <int kWidth, typename T, typename Map>
__device__ inline void transform(const T* source, T* target, int64_t length, Map map) {
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
    load_tile<kWidth>(source + start, values);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) values[i] = map(values[i]);
    store_tile<kWidth>(target + start, values);
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) put(target + i, map(as_float(source[i])));
}

// target[i] = map(first[i], second[i]) for i < length, by the whole block.
template <int kWidth, typename T, typename Map>
__device__ inline void transform(const T* first, const T* second, T* target, int64_t length, Map map) {
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
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    put(target + i, map(as_float(first[i]), as_float(second[i])));
  }
}
