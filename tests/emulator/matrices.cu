// Warp matrices: every shape, type and layout, element-wise use of fragments, and what is not allowed.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#define TEST extern "C"
using namespace nvcuda;

template <typename T> struct StorageOf { using type = T; };
template <> struct StorageOf<wmma::precision::tf32> { using type = float; };

// How a matrix lies in memory: lines of a multiple of 16 bytes.
template <int rows, int columns, typename T, bool by_rows> struct Placed {
  static constexpr int stride = ((by_rows ? columns : rows) * sizeof(T) + 15) / 16 * 16 / sizeof(T);
  static constexpr int elements = stride * (by_rows ? rows : columns);
};
template <typename Layout> constexpr bool kByRows = std::is_same<Layout, wmma::row_major>::value;

// c := 2 (sum of a[i] b[i] + c) over `steps` tiles a[i] of (m, k) and b[i] of (k, n).
template <int m, int n, int k, typename T, typename Sum, typename LayoutA, typename LayoutB>
__global__ void product(const typename StorageOf<T>::type* a, const typename StorageOf<T>::type* b, Sum* c, int steps,
                        bool sums_by_rows) {
  using PlacedA = Placed<m, k, typename StorageOf<T>::type, kByRows<LayoutA>>;
  using PlacedB = Placed<k, n, typename StorageOf<T>::type, kByRows<LayoutB>>;
  wmma::fragment<wmma::matrix_a, m, n, k, T, LayoutA> left;
  wmma::fragment<wmma::matrix_b, m, n, k, T, LayoutB> right;
  wmma::fragment<wmma::accumulator, m, n, k, Sum> sum, doubled;
  const wmma::layout_t layout = sums_by_rows ? wmma::mem_row_major : wmma::mem_col_major;
  const int stride = sums_by_rows ? n : m;
  wmma::load_matrix_sync(sum, c, stride, layout);
  for (int step = 0; step < steps; ++step) {
    wmma::load_matrix_sync(left, a + step * PlacedA::elements, PlacedA::stride);
    wmma::load_matrix_sync(right, b + step * PlacedB::elements, PlacedB::stride);
    wmma::mma_sync(sum, left, right, sum);
  }
  wmma::fill_fragment(doubled, static_cast<Sum>(0.0f));
  for (int i = 0; i < sum.num_elements; ++i) doubled.x[i] = sum.x[i] + sum.x[i];
  wmma::store_matrix_sync(c, doubled, stride, layout);
}

template <int m, int n, int k, typename T, typename Sum, typename LayoutA, typename LayoutB>
int run_layouts(const void* a, const void* b, void* c, int steps, bool sums_by_rows) {
  using Stored = typename StorageOf<T>::type;
  const int a_bytes = Placed<m, k, Stored, kByRows<LayoutA>>::elements * steps * sizeof(Stored);
  const int b_bytes = Placed<k, n, Stored, kByRows<LayoutB>>::elements * steps * sizeof(Stored);
  const int c_bytes = m * n * sizeof(Sum);
  Stored *device_a, *device_b;
  Sum* device_c;
  cudaMalloc(&device_a, a_bytes);
  cudaMalloc(&device_b, b_bytes);
  cudaMalloc(&device_c, c_bytes);
  cudaMemcpy(device_a, a, a_bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(device_b, b, b_bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(device_c, c, c_bytes, cudaMemcpyHostToDevice);
  product<m, n, k, T, Sum, LayoutA, LayoutB><<<1, 32>>>(device_a, device_b, device_c, steps, sums_by_rows);
  const int error = cudaMemcpy(c, device_c, c_bytes, cudaMemcpyDeviceToHost);
  cudaFree(device_a);
  cudaFree(device_b);
  cudaFree(device_c);
  return error;
}

// Bits of `layouts`, from the lowest: whether a, b and c lie by rows.
template <int m, int n, int k, typename T, typename Sum>
int run(const void* a, const void* b, void* c, int steps, int layouts) {
  using wmma::col_major;
  using wmma::row_major;
  const bool by_rows = (layouts & 4) != 0;
  switch (layouts & 3) {
    case 0: return run_layouts<m, n, k, T, Sum, col_major, col_major>(a, b, c, steps, by_rows);
    case 1: return run_layouts<m, n, k, T, Sum, row_major, col_major>(a, b, c, steps, by_rows);
    case 2: return run_layouts<m, n, k, T, Sum, col_major, row_major>(a, b, c, steps, by_rows);
    default: return run_layouts<m, n, k, T, Sum, row_major, row_major>(a, b, c, steps, by_rows);
  }
}

#define PRODUCT(name, T, Sum)                                                                          \
  TEST int name(int shape, const void* a, const void* b, void* c, int steps, int layouts) {            \
    if (shape == 16) return run<16, 16, 16, T, Sum>(a, b, c, steps, layouts);                          \
    if (shape == 32) return run<32, 8, 16, T, Sum>(a, b, c, steps, layouts);                           \
    return run<8, 32, 16, T, Sum>(a, b, c, steps, layouts);                                            \
  }
PRODUCT(product_half, __half, float)
PRODUCT(product_half_half, __half, __half)
PRODUCT(product_bfloat16, __nv_bfloat16, float)
PRODUCT(product_int8, signed char, int)
PRODUCT(product_uint8, unsigned char, int)
TEST int product_tf32(int, const void* a, const void* b, void* c, int steps, int layouts) {
  return run<16, 16, 8, wmma::precision::tf32, float>(a, b, c, steps, layouts);
}
TEST int product_double(int, const void* a, const void* b, void* c, int steps, int layouts) {
  return run<8, 8, 4, double, double>(a, b, c, steps, layouts);
}

__global__ void rounded(float* x) { x[threadIdx.x] = wmma::__float_to_tf32(x[threadIdx.x]); }
TEST void run_rounded(float* x, int n) { rounded<<<1, n>>>(x); }

// Four warps, each one tile of an accumulator of half that is added to one of float.
__global__ void mixed(float* out) {
  __shared__ __align__(32) __half ones[16 * 24];
  __shared__ __align__(32) float tiles[4][16 * 20];
  const int warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < 16 * 24; i += blockDim.x) ones[i] = __float2half(1.0f);
  __syncthreads();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, __half> start;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::load_matrix_sync(left, ones, 24);
  wmma::fill_fragment(right, __float2half(static_cast<float>(warp)));
  wmma::fill_fragment(start, __float2half(0.5f));
  wmma::mma_sync(sum, left, right, start);
  wmma::store_matrix_sync(tiles[warp], sum, 20, wmma::mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x % 32; i < 256; i += 32) out[256 * warp + i] = tiles[warp][i / 16 * 20 + i % 16];
}
TEST void run_mixed(float* out) { mixed<<<1, 128>>>(out); }

using Sums = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

__global__ void saturating(int* out, bool saturate) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> sum;
  wmma::fill_fragment(left, 127);
  wmma::fill_fragment(right, 127);
  wmma::fill_fragment(sum, 0x7ffffff0);
  wmma::mma_sync(sum, left, right, sum, saturate);
  out[threadIdx.x] = sum.x[0];
}
TEST void run_saturating(int* out, int saturate) { saturating<<<1, 32>>>(out, saturate != 0); }

__global__ void some_lanes(float* x) {
  Sums sum;
  wmma::fill_fragment(sum, 1.0f);
  if (threadIdx.x % 32 == 7) return;
  wmma::store_matrix_sync(x, sum, 16, wmma::mem_row_major);
}
__global__ void two_matrices(float* x) {
  Sums sum;
  wmma::load_matrix_sync(sum, x + threadIdx.x / 16 * 128, 16, wmma::mem_row_major);
  if (threadIdx.x == 0) x[0] = sum.x[0];
}
__global__ void two_operations(float* x) {
  Sums sum;
  wmma::fill_fragment(sum, 1.0f);
  if (threadIdx.x < 16) {
    wmma::load_matrix_sync(sum, x, 16, wmma::mem_row_major);
  } else {
    wmma::store_matrix_sync(x, sum, 16, wmma::mem_row_major);
  }
}
__global__ void misplaced(float* x, int offset, int stride) {
  Sums sum;
  wmma::load_matrix_sync(sum, x + offset, stride, wmma::mem_row_major);
  if (threadIdx.x == 0) x[0] = sum.x[0];
}
TEST int run_misuse(int which, int threads, int offset, int stride) {
  float* x;
  cudaMalloc(&x, 4096 * sizeof(float));
  cudaMemset(x, 0, 4096 * sizeof(float));
  if (which == 0) some_lanes<<<1, threads>>>(x);
  if (which == 1) two_matrices<<<1, threads>>>(x);
  if (which == 2) two_operations<<<1, threads>>>(x);
  if (which == 3) misplaced<<<1, threads>>>(x, offset, stride);
  const int error = cudaGetLastError();
  cudaFree(x);
  return error;
}
