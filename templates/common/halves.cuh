// Elements of half the size: floats to compute with, rounded once, to nearest even, where they are stored.

#if HALVES
// Eight elements in 16 bytes, by what `Of` knows of two and of one.
template <typename Of>
struct InPairs {
  using Vector = uint4;
  static __device__ __forceinline__ void unpack(const uint4& vector, float* values) {
    const uint32_t pairs[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = Of::pair(pairs[i]);
      values[2 * i] = pair.x;
      values[2 * i + 1] = pair.y;
    }
  }
  static __device__ __forceinline__ uint4 packed(const float* values) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = Of::bits(Of::rounded(values[2 * i + 1])) << 16 | Of::bits(Of::rounded(values[2 * i]));
    }
    return {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
};

template <>
struct Format<__half> : InPairs<Format<__half>> {
  static __device__ __forceinline__ float widened(__half value) { return __half2float(value); }
  static __device__ __forceinline__ __half rounded(float value) { return __float2half_rn(value); }
  static __device__ __forceinline__ uint32_t bits(__half value) { return __half_as_ushort(value); }
  static __device__ __forceinline__ float2 pair(uint32_t bits) {
    return {__half2float(__ushort_as_half(static_cast<unsigned short>(bits))),
            __half2float(__ushort_as_half(static_cast<unsigned short>(bits >> 16)))};
  }
};

template <>
struct Format<__nv_bfloat16> : InPairs<Format<__nv_bfloat16>> {
  static __device__ __forceinline__ float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
  static __device__ __forceinline__ __nv_bfloat16 rounded(float value) { return __float2bfloat16_rn(value); }
  static __device__ __forceinline__ uint32_t bits(__nv_bfloat16 value) { return __bfloat16_as_ushort(value); }
  static __device__ __forceinline__ float2 pair(uint32_t bits) {
    return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};  // the upper half of a float's bits
  }
};
#endif
