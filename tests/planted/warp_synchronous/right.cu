// A __syncwarp stands between the reads and the writes of every step.
#include <cuda_runtime.h>

__device__ void warpReduce(volatile float* sdata, int tid) {
  float v = sdata[tid];
  v += sdata[tid + 32]; __syncwarp();
  sdata[tid] = v; __syncwarp();
  v += sdata[tid + 16]; __syncwarp();
  sdata[tid] = v; __syncwarp();
  v += sdata[tid + 8]; __syncwarp();
  sdata[tid] = v; __syncwarp();
  v += sdata[tid + 4]; __syncwarp();
  sdata[tid] = v; __syncwarp();
  v += sdata[tid + 2]; __syncwarp();
  sdata[tid] = v; __syncwarp();
  v += sdata[tid + 1]; __syncwarp();
  sdata[tid] = v;
}

__global__ void reduce(const float* g_idata, float* g_odata, int n) {
  __shared__ float sdata[256];
  int tid = threadIdx.x;
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + tid; i < n; i += gridDim.x * blockDim.x) sum += g_idata[i];
  sdata[tid] = sum;
  __syncthreads();
  if (tid < 128) sdata[tid] += sdata[tid + 128];
  __syncthreads();
  if (tid < 64) sdata[tid] += sdata[tid + 64];
  __syncthreads();
  if (tid < 32) warpReduce(sdata, tid);
  if (tid == 0) g_odata[blockIdx.x] = sdata[0];
}

extern "C" void run() {
  const int n = 2000;
  static float g_idata[n];
  for (int i = 0; i < n; ++i) g_idata[i] = i % 11;
  float* d_g_idata;
  cudaMalloc(&d_g_idata, n * sizeof(float));
  cudaMemcpy(d_g_idata, g_idata, n * sizeof(float), cudaMemcpyHostToDevice);
  static float g_odata[2];
  float* d_g_odata;
  cudaMalloc(&d_g_odata, 2 * sizeof(float));
  reduce<<<2, 256>>>(d_g_idata, d_g_odata, n);
  cudaMemcpy(g_odata, d_g_odata, 2 * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_g_idata);
  cudaFree(d_g_odata);
}
