// Every level of both sweeps begins with a barrier.
#include <cuda_runtime.h>

// The work-efficient scan: n / 2 threads for n elements, n a power of two.
__global__ void prescan(float* g_odata, const float* g_idata, int n) {
  extern __shared__ float temp[];
  int thid = threadIdx.x;
  int offset = 1;
  temp[2 * thid] = g_idata[2 * thid];
  temp[2 * thid + 1] = g_idata[2 * thid + 1];
  for (int d = n >> 1; d > 0; d >>= 1) {
    __syncthreads();
    if (thid < d) {
      int ai = offset * (2 * thid + 1) - 1;
      int bi = offset * (2 * thid + 2) - 1;
      temp[bi] += temp[ai];
    }
    offset *= 2;
  }
  if (thid == 0) temp[n - 1] = 0;
  for (int d = 1; d < n; d *= 2) {
    offset >>= 1;
    __syncthreads();
    if (thid < d) {
      int ai = offset * (2 * thid + 1) - 1;
      int bi = offset * (2 * thid + 2) - 1;
      float t = temp[ai];
      temp[ai] = temp[bi];
      temp[bi] += t;
    }
  }
  __syncthreads();
  g_odata[2 * thid] = temp[2 * thid];
  g_odata[2 * thid + 1] = temp[2 * thid + 1];
}

extern "C" void run() {
  const int n = 128;
  static float g_idata[n];
  for (int i = 0; i < n; ++i) g_idata[i] = i % 5;
  float* d_g_idata;
  cudaMalloc(&d_g_idata, n * sizeof(float));
  cudaMemcpy(d_g_idata, g_idata, n * sizeof(float), cudaMemcpyHostToDevice);
  static float g_odata[n];
  float* d_g_odata;
  cudaMalloc(&d_g_odata, n * sizeof(float));
  prescan<<<1, n / 2, n * sizeof(float)>>>(d_g_odata, d_g_idata, n);
  cudaMemcpy(g_odata, d_g_odata, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_g_idata);
  cudaFree(d_g_odata);
}
