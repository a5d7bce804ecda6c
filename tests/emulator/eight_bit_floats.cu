// Converts to and from floats of 8 bits, in every way that cuda_fp8.h has.
#include <cuda_fp8.h>

template <typename One, typename Pair, typename Four, __nv_fp8_interpretation_t kind>
__global__ void narrowed(const float* in, unsigned char* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float value = in[i];
  unsigned char* found = out + 8 * i;
  found[0] = __nv_cvt_float_to_fp8(value, __NV_NOSAT, kind);
  found[1] = One(value).__x;
  found[2] = One(static_cast<double>(value)).__x;
  found[3] = One(__float2bfloat16(value)).__x;
  found[4] = __nv_cvt_halfraw_to_fp8(__float2half(value), __NV_NOSAT, kind);
  found[5] = Pair(float2{0.0f, value}).__x >> 8;
  found[6] = Four(float4{0.0f, 0.0f, value, 0.0f}).__x >> 16 & 0xff;
  found[7] = One(static_cast<int>(value)).__x;
}

template <typename One, typename Pair, typename Four>
__global__ void widened(float* out, int* whole) {
  One value;
  value.__x = threadIdx.x;
  Pair pair;
  pair.__x = threadIdx.x << 8;
  Four four;
  four.__x = threadIdx.x << 24;
  float* found = out + 4 * threadIdx.x;
  found[0] = float(value);
  found[1] = __half2float(__half(value));
  found[2] = static_cast<float2>(pair).y;
  found[3] = static_cast<float4>(four).w;
  whole[threadIdx.x] = int(value);
}

#define LAUNCHERS(name, kind)                                                                             \
  extern "C" int narrow_##name(const float* in, unsigned char* out, int count) {                         \
    narrowed<__nv_fp8_##name, __nv_fp8x2_##name, __nv_fp8x4_##name, kind>                                 \
        <<<(count + 127) / 128, 128>>>(in, out, count);                                                   \
    return cudaGetLastError();                                                                            \
  }                                                                                                       \
  extern "C" int widen_##name(float* out, int* whole) {                                                   \
    widened<__nv_fp8_##name, __nv_fp8x2_##name, __nv_fp8x4_##name><<<1, 256>>>(out, whole);               \
    return cudaGetLastError();                                                                            \
  }
LAUNCHERS(e4m3, __NV_E4M3)
LAUNCHERS(e5m2, __NV_E5M2)
