// kind: race
// Each step writes a cell in place while the neighbours still read its old value.
#include <cuda_runtime.h>

__global__ void heat(const float* start, float* end, int n, int steps) {
  extern __shared__ float cells[];
  int t = threadIdx.x;
  cells[t] = start[t];
  __syncthreads();
  for (int step = 0; step < steps; ++step) {
    int left = t > 0 ? t - 1 : t, right = t < n - 1 ? t + 1 : t;
    cells[t] = 0.25f * cells[left] + 0.5f * cells[t] + 0.25f * cells[right];  // BUG
    __syncthreads();
  }
  end[t] = cells[t];
}

extern "C" void run() {
  const int n = 96;
  static float start[n];
  for (int i = 0; i < n; ++i) start[i] = i == 48 ? 100.0f : 0.0f;
  float* d_start;
  cudaMalloc(&d_start, n * sizeof(float));
  cudaMemcpy(d_start, start, n * sizeof(float), cudaMemcpyHostToDevice);
  static float end[n];
  float* d_end;
  cudaMalloc(&d_end, n * sizeof(float));
  heat<<<1, n, n * sizeof(float)>>>(d_start, d_end, n, 5);
  cudaMemcpy(end, d_end, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_start);
  cudaFree(d_end);
}
