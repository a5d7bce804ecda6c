// Each step reads one array and writes the other, with one barrier a step.
#include <cuda_runtime.h>

__global__ void heat(const float* start, float* end, int n, int steps) {
  extern __shared__ float cells[];
  int t = threadIdx.x;
  float* now = cells;
  float* next = cells + n;
  now[t] = start[t];
  __syncthreads();
  for (int step = 0; step < steps; ++step) {
    int left = t > 0 ? t - 1 : t, right = t < n - 1 ? t + 1 : t;
    next[t] = 0.25f * now[left] + 0.5f * now[t] + 0.25f * now[right];
    __syncthreads();
    float* swapped = now;
    now = next;
    next = swapped;
  }
  end[t] = now[t];
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
  heat<<<1, n, 2 * n * sizeof(float)>>>(d_start, d_end, n, 5);
  cudaMemcpy(end, d_end, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_start);
  cudaFree(d_end);
}
