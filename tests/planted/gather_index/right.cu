// An index outside the table gives zeros.
#include <cuda_runtime.h>

__global__ void embedding(const float* __restrict__ table, const int* __restrict__ ids, float* __restrict__ out,
                          int entries, int dim) {
  const int id = ids[blockIdx.x];
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    out[blockIdx.x * dim + d] = id >= 0 && id < entries ? table[id * dim + d] : 0.0f;
  }
}

extern "C" void run() {
  const int entries = 10, dim = 24, tokens = 6;
  static float table[entries * dim];
  for (int i = 0; i < entries * dim; ++i) table[i] = i * 0.1f;
  float* d_table;
  cudaMalloc(&d_table, entries * dim * sizeof(float));
  cudaMemcpy(d_table, table, entries * dim * sizeof(float), cudaMemcpyHostToDevice);
  static int ids[tokens];
  for (int i = 0; i < tokens; ++i) ids[i] = i * 2;
  int* d_ids;
  cudaMalloc(&d_ids, tokens * sizeof(int));
  cudaMemcpy(d_ids, ids, tokens * sizeof(int), cudaMemcpyHostToDevice);
  static float out[tokens * dim];
  float* d_out;
  cudaMalloc(&d_out, tokens * dim * sizeof(float));
  embedding<<<tokens, 32>>>(d_table, d_ids, d_out, entries, dim);
  cudaMemcpy(out, d_out, tokens * dim * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_table);
  cudaFree(d_ids);
  cudaFree(d_out);
}
