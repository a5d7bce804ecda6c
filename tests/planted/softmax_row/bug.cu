// kind: race
// block_reduce hands its result out through shared[0]; its second call overwrites that cell while slow threads still read it.
#include <cuda_runtime.h>

struct Max { __device__ float operator()(float a, float b) const { return fmaxf(a, b); } };
struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };

template <typename Op>
__device__ float block_reduce(float v, float* shared, Op op, float identity) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 16; offset > 0; offset /= 2) v = op(v, __shfl_down_sync(0xffffffffu, v, offset));
  if (lane == 0) shared[warp] = v;  // BUG
  __syncthreads();
  v = threadIdx.x < blockDim.x / 32 ? shared[lane] : identity;
  if (warp == 0) {
    for (int offset = 16; offset > 0; offset /= 2) v = op(v, __shfl_down_sync(0xffffffffu, v, offset));
    if (lane == 0) shared[0] = v;
  }
  __syncthreads();
  return shared[0];  // BUG
}

__global__ void softmax(const float* x, float* y, int cols) {
  __shared__ float shared[32];
  const float* row = x + blockIdx.x * cols;
  float best = -INFINITY;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) best = fmaxf(best, row[i]);
  best = block_reduce(best, shared, Max(), -INFINITY);
  float total = 0.0f;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) total += expf(row[i] - best);
  total = block_reduce(total, shared, Sum(), 0.0f);
  for (int i = threadIdx.x; i < cols; i += blockDim.x) y[blockIdx.x * cols + i] = expf(row[i] - best) / total;
}

extern "C" void run() {
  const int rows = 3, cols = 150;
  static float x[rows * cols];
  for (int i = 0; i < rows * cols; ++i) x[i] = (i * 31) % 17 * 0.1f;
  float* d_x;
  cudaMalloc(&d_x, rows * cols * sizeof(float));
  cudaMemcpy(d_x, x, rows * cols * sizeof(float), cudaMemcpyHostToDevice);
  static float y[rows * cols];
  float* d_y;
  cudaMalloc(&d_y, rows * cols * sizeof(float));
  softmax<<<rows, 64>>>(d_x, d_y, cols);
  cudaMemcpy(y, d_y, rows * cols * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_y);
}
