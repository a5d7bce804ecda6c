// cuBLAS's products of matrices, computed by torch's. Everything else of cuBLAS is refused by its name.
#pragma once

#include "cuda_runtime.h"

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16,
};
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 };
enum cublasComputeType_t {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_32I = 72,
  CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};

struct cublasContext {
  cudaStream_t stream = nullptr;
};
using cublasHandle_t = cublasContext*;

namespace cuemu {

// `count` products of matrices in column-major order: c = alpha op(a) op(b) + beta c. Strides are from product to product.
template <typename Number>
struct Products {
  int m, n, k;
  bool is_left_transposed, is_right_transposed;
  Number alpha, beta;
  const Number* left;
  const Number* right;
  Number* result;
  int left_leading, right_leading, result_leading;
  long long left_stride, right_stride, result_stride;
  int count;
};
void multiply(const Products<float>& products);
void multiply(const Products<double>& products);

template <typename Number>
cublasStatus_t multiplied(cublasHandle_t handle, cublasOperation_t left_operation, cublasOperation_t right_operation,
                          const Number* alpha, const Number* beta, Products<Number> products) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  products.is_left_transposed = left_operation != CUBLAS_OP_N;
  products.is_right_transposed = right_operation != CUBLAS_OP_N;
  const auto is_short = [](int leading, int rows) { return leading < (rows > 1 ? rows : 1); };
  if (products.m < 0 || products.n < 0 || products.k < 0 || products.count < 0 || alpha == nullptr || beta == nullptr ||
      is_short(products.left_leading, products.is_left_transposed ? products.k : products.m) ||
      is_short(products.right_leading, products.is_right_transposed ? products.n : products.k) ||
      is_short(products.result_leading, products.m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  products.alpha = *alpha;
  products.beta = *beta;
  if (products.m > 0 && products.n > 0 && products.count > 0) multiply(products);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace cuemu

inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}
inline const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "an error of cuBLAS";
}

#define CUEMU_GEMM(name, Number)                                                                                   \
  inline cublasStatus_t name(cublasHandle_t handle, cublasOperation_t left_operation,                              \
                             cublasOperation_t right_operation, int m, int n, int k, const Number* alpha,          \
                             const Number* left, int left_leading, const Number* right, int right_leading,         \
                             const Number* beta, Number* result, int result_leading) {                             \
    return ::cuemu::multiplied<Number>(handle, left_operation, right_operation, alpha, beta,                       \
                                       {m, n, k, false, false, 0, 0, left, right, result, left_leading,            \
                                        right_leading, result_leading, 0, 0, 0, 1});                               \
  }                                                                                                                \
  inline cublasStatus_t name##StridedBatched(                                                                      \
      cublasHandle_t handle, cublasOperation_t left_operation, cublasOperation_t right_operation, int m, int n,    \
      int k, const Number* alpha, const Number* left, int left_leading, long long left_stride, const Number* right, \
      int right_leading, long long right_stride, const Number* beta, Number* result, int result_leading,           \
      long long result_stride, int count) {                                                                        \
    return ::cuemu::multiplied<Number>(handle, left_operation, right_operation, alpha, beta,                       \
                                       {m, n, k, false, false, 0, 0, left, right, result, left_leading,            \
                                        right_leading, result_leading, left_stride, right_stride, result_stride,   \
                                        count});                                                                   \
  }
CUEMU_GEMM(cublasSgemm, float)
CUEMU_GEMM(cublasDgemm, double)
#undef CUEMU_GEMM
