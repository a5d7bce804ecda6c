// kind: race
// The last block reads other blocks' sums, which a relaxed counter does not publish.
#include <cuda/atomic>

using counter = cuda::atomic_ref<int, cuda::thread_scope_device>;

__global__ void row_sums(const float* x, float* partial, int* counts, float* y, int cols) {
  int row = blockIdx.x / 2, half = blockIdx.x % 2;
  if (threadIdx.x != 0) return;
  float sum = 0;
  for (int c = half; c < cols; c += 2) sum += x[row * cols + c];
  partial[blockIdx.x] = sum;
  if (counter(counts[row]).fetch_add(1, cuda::memory_order_relaxed) == 1) {
    y[row] = partial[2 * row] + partial[2 * row + 1];  // BUG
  }
}

extern "C" void run() {
  const int rows = 3, cols = 40;
  static float x[rows * cols], y[rows];
  for (int i = 0; i < rows * cols; ++i) x[i] = i % 8;
  float *d_x, *d_partial, *d_y;
  int* d_counts;
  cudaMalloc(&d_x, sizeof x);
  cudaMalloc(&d_partial, 2 * sizeof y);
  cudaMalloc(&d_y, sizeof y);
  cudaMalloc(&d_counts, rows * sizeof(int));
  cudaMemcpy(d_x, x, sizeof x, cudaMemcpyHostToDevice);
  cudaMemset(d_counts, 0, rows * sizeof(int));
  row_sums<<<2 * rows, 32>>>(d_x, d_partial, d_counts, d_y, cols);
  cudaMemcpy(y, d_y, sizeof y, cudaMemcpyDeviceToHost);
  cudaFree(d_x);
  cudaFree(d_partial);
  cudaFree(d_y);
  cudaFree(d_counts);
}
