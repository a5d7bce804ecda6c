// The sum over a block of kThreads, in every thread.
__device__ double block_sum(double value) {
  __shared__ double warp_sums[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  __syncthreads();  // what an earlier call left here has been read
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0.0;
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += warp_sums[warp];
  return sum;
}
