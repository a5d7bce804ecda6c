// cuBLAS's products, by torch's. So they count among torch's operators, as a library's kernels do on a GPU.
#define AT_PER_OPERATOR_HEADERS
#include <ATen/ops/bmm.h>
#include <ATen/ops/from_blob.h>

#include "cublas_v2.h"

namespace cuemu {
namespace {

template <typename Number>
at::Tensor matrices(const Number* data, int count, int rows, int columns, int leading, long long stride,
                    bool is_transposed = false) {
  const std::int64_t along = is_transposed ? leading : 1, across = is_transposed ? 1 : leading;
  return at::from_blob(const_cast<Number*>(data), {count, rows, columns}, {stride, along, across},
                       at::TensorOptions(c10::CppTypeToScalarType<Number>::value));
}

template <typename Number>
void multiply_by_torch(const Products<Number>& all) {
  const at::Tensor left = matrices(all.left, all.count, all.m, all.k, all.left_leading, all.left_stride, all.is_left_transposed);
  const at::Tensor right = matrices(all.right, all.count, all.k, all.n, all.right_leading, all.right_stride, all.is_right_transposed);
  const at::Tensor result = matrices(all.result, all.count, all.m, all.n, all.result_leading, all.result_stride);
  const at::Tensor product = at::bmm(left, right);
  if (all.beta == 0) result.copy_(product.mul_(all.alpha));  // what the result held before may be NaN
  else result.mul_(all.beta).add_(product, all.alpha);
}

}  // namespace

void multiply(const Products<float>& products) { multiply_by_torch(products); }
void multiply(const Products<double>& products) { multiply_by_torch(products); }

}  // namespace cuemu

namespace at::cuda {

cublasHandle_t getCurrentCUDABlasHandle(bool) {
  static cublasContext handle;
  return &handle;
}

}  // namespace at::cuda
