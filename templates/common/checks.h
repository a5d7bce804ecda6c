float* floats(const torch::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr<float>() : nullptr; }

void check(const torch::Tensor& tensor, const torch::Tensor& x, torch::IntArrayRef sizes, const char* name) {
  TORCH_CHECK(tensor.is_cuda() && tensor.device() == x.device() && tensor.scalar_type() == torch::kFloat &&
              tensor.is_contiguous() && tensor.sizes() == sizes,
              name, " must be float32, contiguous and of shape ", sizes, " on the device of x, got ", tensor.sizes());
}

Shape shape_of(const torch::Tensor& product, int64_t groups) {
  TORCH_CHECK(product.dim() == 2, "the product must have 2 dimensions, got ", product.dim());
  const int64_t columns = product.size(1);
  check(product, product, {product.size(0), columns}, "the product");
  TORCH_CHECK(groups > 0 && columns > 0 && columns % groups == 0 && columns <= 0x7fffffff, columns,
              " features cannot be divided into ", groups, " groups, or are more than the kernels count");
  return {product.size(0), columns, groups};
}
