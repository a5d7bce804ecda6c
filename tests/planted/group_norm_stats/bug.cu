// kind: race
// also: uninitialised
// Thread 0 turns the sums into mean and rstd in place while other threads have not read them behind a barrier.
#include <cuda_runtime.h>

__global__ void group_norm_forward(const float* x, const float* gamma, const float* beta, float* y, int channels,
                                   int groups, int hw, float eps) {
  const int per_group = channels / groups;
  const int size = per_group * hw;
  const int group = blockIdx.x % groups;
  const float* in = x + (long long)blockIdx.x * size;
  float* out = y + (long long)blockIdx.x * size;
  __shared__ float sums[64], squares[64];
  __shared__ float mean, rstd;
  float sum = 0.f, square = 0.f;
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    float v = in[i];
    sum += v;
    square += v * v;
  }
  sums[threadIdx.x] = sum;
  squares[threadIdx.x] = square;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) {
      sums[threadIdx.x] += sums[threadIdx.x + s];
      squares[threadIdx.x] += squares[threadIdx.x + s];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    mean = sums[0] / size;  // BUG
    rstd = rsqrtf(squares[0] / size - mean * mean + eps);  // BUG
  }
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    int c = group * per_group + i / hw;
    out[i] = (in[i] - mean) * rstd * gamma[c] + beta[c];  // BUG
  }
}

extern "C" void run() {
  const int batch = 2, channels = 8, groups = 2, hw = 25;
  static float x[batch * channels * hw];
  for (int i = 0; i < batch * channels * hw; ++i) x[i] = (i * 7) % 19 * 0.1f;
  float* d_x;
  cudaMalloc(&d_x, batch * channels * hw * sizeof(float));
  cudaMemcpy(d_x, x, batch * channels * hw * sizeof(float), cudaMemcpyHostToDevice);
  static float gamma[channels];
  for (int i = 0; i < channels; ++i) gamma[i] = 1.0f + i;
  float* d_gamma;
  cudaMalloc(&d_gamma, channels * sizeof(float));
  cudaMemcpy(d_gamma, gamma, channels * sizeof(float), cudaMemcpyHostToDevice);
  static float beta[channels];
  for (int i = 0; i < channels; ++i) beta[i] = 0.5f * i;
  float* d_beta;
  cudaMalloc(&d_beta, channels * sizeof(float));
  cudaMemcpy(d_beta, beta, channels * sizeof(float), cudaMemcpyHostToDevice);
  static float y[batch * channels * hw];
  float* d_y;
  cudaMalloc(&d_y, batch * channels * hw * sizeof(float));
  group_norm_forward<<<batch * groups, 64>>>(d_x, d_gamma, d_beta, d_y, channels, groups, hw, 1e-5f);
  cudaMemcpy(y, d_y, batch * channels * hw * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_gamma);
  cudaFree(d_beta);
  cudaFree(d_y);
}
