// Tiles of kBatch elements a thread, held in registers as floats: all loads of a tile are in flight before the first is
// used. Within a tile, thread t owns the vectors t, t + blockDim.x, t + 2 blockDim.x, ... so that warps read whole lines.

// How elements of a type lie in memory, one by one and in vectors of 16 bytes.
template <typename T>
struct Format;

template <>
struct Format<float> {
  using Vector = float4;
  static __device__ __forceinline__ float widened(float value) { return value; }
  static __device__ __forceinline__ float rounded(float value) { return value; }
  static __device__ __forceinline__ void unpack(const float4& vector, float* values) {
    values[0] = vector.x;
    values[1] = vector.y;
    values[2] = vector.z;
    values[3] = vector.w;
  }
  static __device__ __forceinline__ float4 packed(const float* values) {
    return make_float4(values[0], values[1], values[2], values[3]);
  }
};

template <typename T>
__device__ __forceinline__ float as_float(T value) {
  return Format<T>::widened(value);
}

template <typename T>
__device__ __forceinline__ void put(T* to, float value) {
  *to = Format<T>::rounded(value);
}

template <int kWidth, typename T>
__device__ inline void load_vector(const T* source, float* values) {
  if constexpr (kWidth == 1) {
    values[0] = as_float(*source);
  } else {
    static_assert(kWidth * sizeof(T) == 16, "a vector has 16 bytes");
    using Vector = typename Format<T>::Vector;
    Format<T>::unpack(*reinterpret_cast<const Vector*>(source), values);
  }
}

template <int kWidth, typename T>
__device__ inline void store_vector(T* target, const float* values) {
  if constexpr (kWidth == 1) {
    put(target, values[0]);
  } else {
    static_assert(kWidth * sizeof(T) == 16, "a vector has 16 bytes");
    using Vector = typename Format<T>::Vector;
    *reinterpret_cast<Vector*>(target) = Format<T>::packed(values);
  }
}

template <int kWidth, typename T>
__device__ inline void load_tile(const T* tile, float (&values)[kBatch]) {
#pragma unroll
  for (int vector = 0; vector < kBatch / kWidth; ++vector) {
    const int64_t position = (static_cast<int64_t>(vector) * blockDim.x + threadIdx.x) * kWidth;
    load_vector<kWidth>(tile + position, values + vector * kWidth);
  }
}

template <int kWidth, typename T>
__device__ inline void store_tile(T* tile, const float (&values)[kBatch]) {
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
