{% include "common/grid.cuh" %}

// Whether rows of so many floats, from these addresses on, can be read in float4.
template <typename... Floats>
bool by_four(int64_t length, const Floats*... rows) {
  return length % 4 == 0 && ((reinterpret_cast<uintptr_t>(rows) % 16 == 0) && ...);
}

template <int kWidth>
__device__ inline void load_vector(const float* source, float* values) {
  if constexpr (kWidth == 1) {
    values[0] = *source;
  } else {
    const float4& vector = *reinterpret_cast<const float4*>(source);
    values[0] = vector.x, values[1] = vector.y, values[2] = vector.z, values[3] = vector.w;
  }
}

template <int kWidth>
__device__ inline void store_vector(float* target, const float* values) {
  if constexpr (kWidth == 1) *target = values[0];
  else *reinterpret_cast<float4*>(target) = make_float4(values[0], values[1], values[2], values[3]);
}
