// The products of the linear layer, by tiles. That of the forward takes the bias along.

struct AddLinearBias {
  static constexpr bool kSeesTile = false;
  const float* linear_bias;

  __device__ float operator()(float sum, int64_t /*m*/, int64_t n) const { return sum + linear_bias[n]; }
};

{% if statistics == "epilogue" %}
int64_t moments_of_row(const Shape& shape) {
  return parts_of_row(shape) * static_cast<int64_t>(sizeof(PartMoments) / sizeof(float));
}

LaunchStatus launch_linear(const Product& product, const float* linear_bias, const Shape& shape, float* z,
                           float* moments, int device, void* stream) {
  const AddLinearBias add_bias = {linear_bias};
  const KeepGroupMoments<AddLinearBias> epilogue = {add_bias, shape, reinterpret_cast<PartMoments*>(moments)};
  return launch_product<true, true>(product, epilogue, z, device, stream);
}
{% else %}
LaunchStatus launch_linear(const Product& product, const float* linear_bias, const Shape& /*shape*/, float* z,
                           float* /*moments*/, int device, void* stream) {
  return launch_product<true, true>(product, AddLinearBias{linear_bias}, z, device, stream);
}
{% endif %}
{% if backward == "dense" %}

LaunchStatus launch_input_product(const Product& product, float* dx, int device, void* stream) {
  return launch_product<true, false>(product, KeepSums(), dx, device, stream);
}

LaunchStatus launch_weight_product(const Product& product, float* dweight, int device, void* stream) {
  return launch_product<false, false>(product, KeepSums(), dweight, device, stream);
}
{% endif %}
