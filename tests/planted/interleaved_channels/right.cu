// The last slice of channels is padded.
#include <cuda.h>
#include <cuda_runtime.h>

using Barrier = unsigned long long;
constexpr int kWidth = 8, kHeight = 3, kChannels = 10;

__device__ unsigned at(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }
__device__ void init(Barrier* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(barrier)), "r"(arrivals) : "memory");
}
__device__ void expect(Barrier* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(barrier)), "r"(bytes) : "memory");
}
__device__ void wait(Barrier* barrier, unsigned parity) {
  asm volatile(
      "{\n .reg .pred done;\n"
      "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\n bra AGAIN;\n DONE:\n }" ::"r"(at(barrier)), "r"(parity) : "memory");
}

// Doubles the channels of a tensor in the layout NC/4HWC4 (slices of 16 bytes), slice by slice.
__global__ void turn(const __grid_constant__ CUtensorMap in, float* out) {
  __shared__ __align__(128) float tile[kHeight][kWidth][4];
  __shared__ Barrier full;
  if (threadIdx.x == 0) init(&full, 1);
  __syncthreads();
  if (threadIdx.x == 0) {
    expect(&full, sizeof tile);
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(at(tile)), "l"(&in), "r"(0), "r"(0), "r"(blockIdx.x), "r"(0), "r"(at(&full)) : "memory");
  }
  wait(&full, 0);
  for (int i = threadIdx.x; i < kHeight * kWidth; i += 32) {
    for (int c = 0; c < 4 && blockIdx.x * 4 + c < kChannels; ++c) {
      out[(blockIdx.x * 4 + c) * kHeight * kWidth + i] = 2 * tile[i / kWidth][i % kWidth][c];
    }
  }
}

extern "C" void run() {
  const int slices = (kChannels + 3) / 4, count = kHeight * kWidth * kChannels;
  static float x[slices * 4 * kHeight * kWidth], y[count];
  for (int i = 0; i < slices * 4 * kHeight * kWidth; ++i) x[i] = i % 11;
  float *d_x, *d_y;
  const std::size_t bytes = sizeof x;
  cudaMalloc(&d_x, bytes);
  cudaMalloc(&d_y, sizeof y);
  cudaMemcpy(d_x, x, bytes, cudaMemcpyHostToDevice);
  CUtensorMap map;
  const cuuint64_t sizes[] = {kWidth, kHeight, slices, 1}, strides[] = {16 * kWidth, 16 * kWidth * kHeight, 16 * kWidth * kHeight * slices};
  const cuuint32_t box[] = {kWidth, kHeight, 1, 1}, steps[] = {1, 1, 1, 1};
  cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, d_x, sizes, strides, box, steps,
                         CU_TENSOR_MAP_INTERLEAVE_16B, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  turn<<<slices, 32>>>(map, d_y);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}
