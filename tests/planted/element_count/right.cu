// The number of elements is multiplied in 64 bits.
#include <cuda_runtime.h>

__global__ void sample(const float* x, float* y, int batch, int channels, int height, int width, long long step,
                       int samples) {
  long long total = (long long)batch * channels * height * width;
  for (int s = threadIdx.x; s < samples; s += blockDim.x) {
    long long i = s * step;
    y[s] = i < total ? x[s] : 0.0f;
  }
}

extern "C" void run() {
  const int samples = 40;
  static float x[samples];
  for (int i = 0; i < samples; ++i) x[i] = i;
  float* d_x;
  cudaMalloc(&d_x, samples * sizeof(float));
  cudaMemcpy(d_x, x, samples * sizeof(float), cudaMemcpyHostToDevice);
  static float y[samples];
  float* d_y;
  cudaMalloc(&d_y, samples * sizeof(float));
  sample<<<1, 32>>>(d_x, d_y, 64, 256, 512, 512, 100000000LL, samples);
  cudaMemcpy(y, d_y, samples * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}
