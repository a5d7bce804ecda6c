// Two buffers and one barrier an iteration: the tiles being loaded are never the ones that any thread still reads.
#include <cuda_runtime.h>

#define TILE 16

__global__ void matmul(const float* A, const float* B, float* C, int N) {
  __shared__ float As[2][TILE][TILE];
  __shared__ float Bs[2][TILE][TILE];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * TILE + ty;
  int col = blockIdx.x * TILE + tx;
  float sum = 0.0f;
  const int tiles = (N + TILE - 1) / TILE;
  auto load = [&](int buffer, int t) {
    As[buffer][ty][tx] = (row < N && t * TILE + tx < N) ? A[row * N + t * TILE + tx] : 0.0f;
    Bs[buffer][ty][tx] = (col < N && t * TILE + ty < N) ? B[(t * TILE + ty) * N + col] : 0.0f;
  };
  load(0, 0);
  for (int t = 0; t < tiles; ++t) {
    __syncthreads();
    if (t + 1 < tiles) load((t + 1) & 1, t + 1);
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += As[t & 1][ty][k] * Bs[t & 1][k][tx];
  }
  if (row < N && col < N) C[row * N + col] = sum;
}

extern "C" void run() {
  const int N = 40;
  static float A[N * N];
  for (int i = 0; i < N * N; ++i) A[i] = (i % 13) * 0.25f;
  float* d_A;
  cudaMalloc(&d_A, N * N * sizeof(float));
  cudaMemcpy(d_A, A, N * N * sizeof(float), cudaMemcpyHostToDevice);
  static float B[N * N];
  for (int i = 0; i < N * N; ++i) B[i] = (i % 7) - 3.0f;
  float* d_B;
  cudaMalloc(&d_B, N * N * sizeof(float));
  cudaMemcpy(d_B, B, N * N * sizeof(float), cudaMemcpyHostToDevice);
  static float C[N * N];
  float* d_C;
  cudaMalloc(&d_C, N * N * sizeof(float));
  dim3 block(TILE, TILE), grid((N + TILE - 1) / TILE, (N + TILE - 1) / TILE);
  matmul<<<grid, block>>>(d_A, d_B, d_C, N);
  cudaMemcpy(C, d_C, N * N * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(d_A);
  cudaFree(d_B);
  cudaFree(d_C);
}
