// Places come from the lanes' votes and the warps' counts, without any shared counter.
#include <cuda_runtime.h>

__global__ void keep_positive(const float* x, float* kept, int* kept_count, int n) {
  __shared__ int counts[4];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  bool keep = threadIdx.x < n && x[threadIdx.x] > 0.0f;
  unsigned votes = __ballot_sync(0xffffffffu, keep);
  if (lane == 0) counts[warp] = __popc(votes);
  __syncthreads();
  int place = __popc(votes & ((1u << lane) - 1));
  for (int w = 0; w < warp; ++w) place += counts[w];
  if (keep) kept[place] = x[threadIdx.x];
  if (threadIdx.x == 0) *kept_count = counts[0] + counts[1] + counts[2] + counts[3];
}

extern "C" void run() {
  const int n = 120;
  static float x[n];
  for (int i = 0; i < n; ++i) x[i] = (i * 13) % 7 - 3.0f;
  float* d_x;
  cudaMalloc(&d_x, n * sizeof(float));
  cudaMemcpy(d_x, x, n * sizeof(float), cudaMemcpyHostToDevice);
  static float kept[n];
  float* d_kept;
  cudaMalloc(&d_kept, n * sizeof(float));
  cudaMemset(d_kept, 0, n * sizeof(float));
  static int kept_count[1];
  int* d_kept_count;
  cudaMalloc(&d_kept_count, sizeof(int));
  keep_positive<<<1, 128>>>(d_x, d_kept, d_kept_count, n);
  cudaMemcpy(kept, d_kept, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(kept_count, d_kept_count, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_kept);
  cudaFree(d_kept_count);
}
