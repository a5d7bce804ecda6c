// kind: race
// All threads of a block draw from one state.
#include <cuda_runtime.h>
#include <curand_kernel.h>

__global__ void begin(curandState* states) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  curand_init(1234, i, 0, &states[i]);
}
__global__ void draw(curandState* states, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = curand_uniform(&states[blockIdx.x]);  // BUG
}

extern "C" void run() {
  const int n = 256;
  static float y[n];
  float* d_y;
  curandState* d_states;
  cudaMalloc(&d_y, n * sizeof(float));
  cudaMalloc(&d_states, n * sizeof(curandState));
  begin<<<2, 128>>>(d_states);
  draw<<<2, 128>>>(d_states, d_y);
  cudaMemcpy(y, d_y, n * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_y);
  cudaFree(d_states);
}
