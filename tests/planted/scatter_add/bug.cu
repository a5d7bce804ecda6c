// kind: race
// Several rows can have the same index, and their gradients are added with a plain +=.
#include <cuda_runtime.h>

__global__ void embedding_backward(const float* grad, const int* index, float* weight_grad, int rows, int dim) {
  int row = blockIdx.x;
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    weight_grad[index[row] * dim + d] += grad[row * dim + d];  // BUG
  }
}

extern "C" void run() {
  const int rows = 8, dim = 40, entries = 11;
  static float grad[rows * dim];
  for (int i = 0; i < rows * dim; ++i) grad[i] = i % 8;
  float* d_grad;
  cudaMalloc(&d_grad, rows * dim * sizeof(float));
  cudaMemcpy(d_grad, grad, rows * dim * sizeof(float), cudaMemcpyHostToDevice);
  static int index[rows];
  for (int i = 0; i < rows; ++i) index[i] = i % 3;
  int* d_index;
  cudaMalloc(&d_index, rows * sizeof(int));
  cudaMemcpy(d_index, index, rows * sizeof(int), cudaMemcpyHostToDevice);
  static float weight_grad[entries * dim];
  float* d_weight_grad;
  cudaMalloc(&d_weight_grad, entries * dim * sizeof(float));
  cudaMemset(d_weight_grad, 0, entries * dim * sizeof(float));
  embedding_backward<<<rows, 32>>>(d_grad, d_index, d_weight_grad, rows, dim);
  cudaMemcpy(weight_grad, d_weight_grad, entries * dim * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_grad);
  cudaFree(d_index);
  cudaFree(d_weight_grad);
}
