// The three products of a linear layer, by tiles. That of the forward takes both biases along.

struct AddBiases {
  static constexpr bool kSeesTile = false;
  Biases biases;

  __device__ float operator()(float sum, int64_t m, int64_t n) const {
    return (sum + biases.linear[n]) + biases.added[m * biases.row_stride + n * biases.column_stride];
  }
};

LaunchStatus launch_linear(const Product& product, const Biases& biases, float* z, int device, void* stream) {
  return launch_product<true, true>(product, AddBiases{biases}, z, device, stream);
}

LaunchStatus launch_input_gradient(const Product& product, float* dx, int device, void* stream) {
  return launch_product<true, false>(product, KeepSums(), dx, device, stream);
}

LaunchStatus launch_weight_gradient(const Product& product, float* dweight, int device, void* stream) {
  return launch_product<false, false>(product, KeepSums(), dweight, device, stream);
}
