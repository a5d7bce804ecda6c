// kind: race
// Threads of all blocks count up global bins with a plain ++.
#include <cuda_runtime.h>

__global__ void count_labels(const long long* labels, int* counts, int n, int classes) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    long long label = labels[i];
    if (label >= 0 && label < classes) {
      counts[label]++;  // BUG
    }
  }
}

extern "C" void run() {
  const int n = 400, classes = 10;
  static long labels_narrow[n];
  for (int i = 0; i < n; ++i) labels_narrow[i] = (i * 3) % 11 - 1;
  long* d_labels_narrow;
  cudaMalloc(&d_labels_narrow, n * sizeof(long));
  cudaMemcpy(d_labels_narrow, labels_narrow, n * sizeof(long), cudaMemcpyHostToDevice);
  static long long labels[n];
  for (int i = 0; i < n; ++i) labels[i] = labels_narrow[i];
  long long* d_labels;
  cudaMalloc(&d_labels, n * sizeof(long long));
  cudaMemcpy(d_labels, labels, n * sizeof(long long), cudaMemcpyHostToDevice);
  static int counts[classes];
  int* d_counts;
  cudaMalloc(&d_counts, classes * sizeof(int));
  cudaMemset(d_counts, 0, classes * sizeof(int));
  count_labels<<<2, 64>>>(d_labels, d_counts, n, classes);
  cudaFree(d_labels);
  cudaMemcpy(counts, d_counts, classes * sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(d_labels_narrow);
  cudaFree(d_counts);
}
