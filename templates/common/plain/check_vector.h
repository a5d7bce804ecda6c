void check_vector(const torch::Tensor& tensor, const torch::Tensor& x, const char* name) {
  TORCH_CHECK(tensor.device() == x.device() && tensor.is_contiguous() && tensor.scalar_type() == torch::kFloat &&
              tensor.numel() == x.size(1), name, " must be float32, contiguous, with an element for each channel");
}
