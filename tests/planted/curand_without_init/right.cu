// Every state has a beginning, the last ones of another seed.
#include <cuda_runtime.h>
#include <curand_kernel.h>

__global__ void begin(curandState* states, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) curand_init(1234, i, 0, &states[i]);
  else curand_init(4321, i, 0, &states[i]);
}
__global__ void draw(const curandState* states, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  curandState own = states[i];
  y[i] = curand_normal(&own);
}

extern "C" void run() {
  const int n = 256;
  static float y[n];
  float* d_y;
  curandState* d_states;
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMalloc(&d_states, n * sizeof(curandState));
  begin<<<2, 128>>>(d_states, 200);
  draw<<<2, 128>>>(d_states, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_y);
  cudaFree(d_states);
}
