// Functions of CUDA that few kernels use.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__constant__ int scale = 3;

__global__ void real_functions(const float* values, float* singles, double* doubles) {
  const double wide[4] = {values[0], values[1], values[2], values[3]};
  float* single = singles;
  *single++ = normf(4, values);
  *single++ = rnormf(4, values);
  *single++ = rnorm4df(values[0], values[1], values[2], values[3]);
  *single++ = cyl_bessel_i0f(values[4]);
  *single++ = cyl_bessel_i1f(values[4]);
  *single++ = cyl_bessel_i1f(-values[4]);
  *single++ = __fmaf_ieee_rz(values[4], values[4], 1e-9f);
  *single++ = __half2float(htanh_approx(__float2half(values[4])));
  double* wider = doubles;
  *wider++ = norm(4, wide);
  *wider++ = rnorm(4, wide);
  *wider++ = rnorm3d(wide[0], wide[1], wide[2]);
  *wider++ = cyl_bessel_i0(700.0);
  *wider++ = cyl_bessel_i1(1000.0);
  *wider++ = sinpi(values[4]) - sinpif(values[4]);  // with a float both are float
}

// Blocks of 64 threads, of which each warp adds to its own part at a barrier of its own.
__global__ void threads_functions(int* out, long long* bits, float4* sums) {
  __shared__ int counters[2];
  __builtin_assume(blockDim.x == 64);
  const int warp = threadIdx.x / 32;
  int local = threadIdx.x;
  if (threadIdx.x < 2) counters[threadIdx.x] = 0;
  __barrier_sync(0);
  atomicAdd(&counters[warp], 1);
  __barrier_sync_count(1 + warp, 32);
  atomicOr(bits, 1ll << threadIdx.x);
  atomicAdd_block(sums, make_float4(1, 2, 3, 4));
  if (threadIdx.x % 32 != 0) return;
  int* mine = out + 8 * warp;
  mine[0] = counters[warp];
  mine[1] = __isLocal(&local) != 0 && !__isGlobal(&local) && !__isShared(&local);
  mine[2] = __isShared(counters) != 0 && __isCtaShared(counters) != 0 && !__isGlobal(counters);
  mine[3] = __isGlobal(out) != 0 && !__isLocal(out);
  mine[4] = *static_cast<int*>(__cvta_global_to_generic(__cvta_generic_to_global(&mine[0])));
  mine[5] = *static_cast<int*>(__cvta_local_to_generic(__cvta_generic_to_local(&local)));
  mine[6] = *static_cast<int*>(__cvta_constant_to_generic(__cvta_generic_to_constant(&scale)));
  mine[7] = static_cast<int>(__clusterSizeInBlocks() + __clusterDim().x + __clusterRelativeBlockRank());
}

__global__ void votes(int* out) {
  const int uniform = __uni_sync(0xffffffffu, 1), mixed = __uni_sync(0xffffffffu, threadIdx.x == 3);
  if (threadIdx.x == 0) out[0] = uniform * 2 + mixed;
}

extern "C" void run_real_functions(const float* values, float* singles, double* doubles) {
  real_functions<<<1, 1>>>(values, singles, doubles);
}
extern "C" void run_threads_functions(int* out, long long* bits, float* sums) {
  threads_functions<<<1, 64>>>(out, bits, reinterpret_cast<float4*>(sums));
}
extern "C" void run_votes(int* out) { votes<<<1, 32>>>(out); }
