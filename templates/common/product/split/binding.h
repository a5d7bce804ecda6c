// A matrix (rows, columns), either of whose sides may run along memory.
inline Operand operand_of(const Tensor& tensor, const Tensor& left, int64_t depth_side, const char* name) {
  STD_TORCH_CHECK(tensor.scalar_type() == torch::headeronly::ScalarType::Float && tensor.dim() == 2, name,
                  " must be float32 with 2 dimensions");
  STD_TORCH_CHECK(tensor.get_device_index() == left.get_device_index(), name, " must be on the device of the other");
  const int64_t extent_side = 1 - depth_side;
  const int64_t extent = tensor.size(extent_side);
  const int64_t depth = tensor.size(depth_side);
  const bool depth_runs = tensor.stride(depth_side) == 1 && tensor.stride(extent_side) == depth;
  STD_TORCH_CHECK(depth_runs || (tensor.stride(extent_side) == 1 && tensor.stride(depth_side) == extent), name,
                  " must be contiguous, or transposed so");
  return {input_floats(tensor), extent, depth_runs};
}

// left (m, k) times right (k, n) by halves on tensor cores; nothing where that is not what suits.
inline std::optional<Tensor> multiply(const Tensor& left, const Tensor& right) {
  const Operand rows = operand_of(left, left, 1, "the left matrix");
  const Operand columns = operand_of(right, left, 0, "the right matrix");
  const int64_t depth = left.size(1);
  STD_TORCH_CHECK(right.size(0) == depth, "the right matrix must have ", depth, " rows, got ", right.size(0));
  const int64_t bytes = split_scratch(rows, columns, depth, left.get_device_index());
  if (bytes == 0) return std::nullopt;
  Tensor product = torch::stable::new_empty(left, {rows.extent, columns.extent});
  Tensor scratch = torch::stable::new_empty(left, {bytes}, torch::headeronly::ScalarType::Byte);
  check_launch(launch_split_product(rows, columns, depth, output_floats(product),
                                    static_cast<uint8_t*>(scratch.data_ptr()), left.get_device_index(),
                                    current_stream(left)));
  return product;
}
