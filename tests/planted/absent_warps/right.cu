// The first warp takes zero for the warps that the block does not have.
#include <cuda_runtime.h>

__device__ float block_reduce_sum(float val) {
  static __shared__ float shared[32];
  int lane = threadIdx.x % warpSize;
  int wid = threadIdx.x / warpSize;
  for (int offset = warpSize / 2; offset > 0; offset /= 2) val += __shfl_down_sync(0xffffffff, val, offset);
  if (lane == 0) shared[wid] = val;
  __syncthreads();
  val = (threadIdx.x < blockDim.x / warpSize) ? shared[lane] : 0;
  if (wid == 0) {
    for (int offset = warpSize / 2; offset > 0; offset /= 2) val += __shfl_down_sync(0xffffffff, val, offset);
  }
  return val;
}

__global__ void mse_loss(const float* prediction, const float* target, float* loss, int n) {
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    float d = prediction[i] - target[i];
    sum += d * d;
  }
  sum = block_reduce_sum(sum);
  if (threadIdx.x == 0) atomicAdd(loss, sum / n);
}

extern "C" void run() {
  const int n = 500;
  static float prediction[n];
  for (int i = 0; i < n; ++i) prediction[i] = i % 6;
  float* d_prediction;
  cudaMalloc(&d_prediction, n * sizeof(float));
  cudaMemcpy(d_prediction, prediction, n * sizeof(float), cudaMemcpyHostToDevice);
  static float target[n];
  for (int i = 0; i < n; ++i) target[i] = i % 4;
  float* d_target;
  cudaMalloc(&d_target, n * sizeof(float));
  cudaMemcpy(d_target, target, n * sizeof(float), cudaMemcpyHostToDevice);
  static float loss[1];
  float* d_loss;
  cudaMalloc(&d_loss, sizeof(float));
  cudaMemset(d_loss, 0, sizeof(float));
  mse_loss<<<2, 128>>>(d_prediction, d_target, d_loss, n);
  cudaMemcpy(loss, d_loss, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_prediction);
  cudaFree(d_target);
  cudaFree(d_loss);
}
