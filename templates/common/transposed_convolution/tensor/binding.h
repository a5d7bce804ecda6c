// The sizes of a transposed convolution of x by `weight` (in, out, kernel_y, kernel_x).
DenseConvolution dense_convolution_of(const Tensor& x, const Tensor& weight, int64_t stride_y, int64_t stride_x) {
  STD_TORCH_CHECK(x.dim() == 4 && weight.dim() == 4 && x.size(1) == weight.size(0), "x must be (batch, ",
                  weight.size(0), " channels, height, width)");
  constexpr int64_t kMost = 1 << 20;
  const bool is_small = x.size(1) < kMost && weight.size(1) < kMost && x.size(2) < kMost && x.size(3) < kMost &&
                        weight.size(2) < kMost && weight.size(3) < kMost && stride_y > 0 && stride_y < kMost &&
                        stride_x > 0 && stride_x < kMost;
  if (!is_small) return {0, 0, 0, 0, 0, 0, 0, 1, 1};
  return {x.size(0),
          static_cast<int>(x.size(1)),
          static_cast<int>(weight.size(1)),
          static_cast<int>(x.size(2)),
          static_cast<int>(x.size(3)),
          static_cast<int>(weight.size(2)),
          static_cast<int>(weight.size(3)),
          static_cast<int>(stride_y),
          static_cast<int>(stride_x)};
}

// y and what its backward wants: z without the bias (batch, out, pitch), statistics (2, batch, groups), and every
// sample's largest magnitude, as bits. Nothing where tensor cores do not suit.
std::tuple<Wanted, Wanted, Wanted, Wanted> convolve(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                                    const Tensor& norm_weight, const Tensor& norm_bias,
                                                    int64_t stride_y, int64_t stride_x, int64_t groups, double eps) {
  check_float_input(x, x, "x");
  check_float_input(weight, x, "the weight of the convolution");
  check_float_input(norm_weight, x, "weight");
  check_float_input(norm_bias, x, "bias");
  const DenseConvolution convolution = dense_convolution_of(x, weight, stride_y, stride_x);
  const int device = x.get_device_index();
  if (!suits_tensor_cores(convolution, device)) return {};
  Tensor y = torch::stable::new_empty(
      x, {x.size(0), weight.size(1), convolution.fine_height(), convolution.fine_width()});
  Shape shape = shape_of(y, norm_weight, groups);
  shape.pitch = convolution.pitch();
  STD_TORCH_CHECK(norm_bias.numel() == shape.channels, "bias must have ", shape.channels, " elements");
  const Shift shift = shift_of(bias, x, shape);
  const int64_t parts = moment_parts(convolution, device);
  Tensor z = torch::stable::new_empty(x, {shape.samples, shape.channels, shape.pitch});
  Tensor moments = torch::stable::new_empty(x, {shape.samples, shape.channels, parts, 3});
  Tensor magnitudes = torch::stable::new_empty(x, {shape.samples}, torch::headeronly::ScalarType::Int);
  Tensor scratch =
      torch::stable::new_empty(x, {convolve_scratch(convolution)}, torch::headeronly::ScalarType::Byte);
  Tensor statistics = torch::stable::new_empty(x, {2, shape.samples, shape.groups});
  float* mean = output_floats(statistics);
  check_launch(launch_convolve(input_floats(x), input_floats(weight), shift.values, convolution, output_floats(z),
                               output_floats(moments), static_cast<unsigned*>(magnitudes.data_ptr()),
                               static_cast<uint8_t*>(scratch.data_ptr()), device, current_stream(x)));
  check_launch(launch_forward_gathered(input_floats(z), shift, input_floats(moments), parts, input_floats(norm_weight),
                                       input_floats(norm_bias), shape, static_cast<float>(eps), output_floats(y), mean,
                                       mean + shape.samples * shape.groups, device, current_stream(x)));
  return {y, z, statistics, magnitudes};
}

// The wanted gradients: of x, of the convolution's weight and bias, of the group norm's weight and bias.
std::tuple<Wanted, Wanted, Wanted, Wanted, Wanted> gradients(
    const Tensor& dy, const Tensor& x, const Tensor& z, const Tensor& weight, const Tensor& bias,
    const Tensor& norm_weight, const Tensor& statistics, const Tensor& magnitudes, int64_t stride_y, int64_t stride_x,
    int64_t groups, bool wants_x, bool wants_weight, bool wants_bias, bool wants_norm_weight, bool wants_norm_bias) {
  const Shape shape = shape_of(dy, norm_weight, groups);
  check_float_input(dy, x, "the gradient of y");
  const float* mean = input_floats(statistics);
  const DenseBackward backward = {dense_convolution_of(x, weight, stride_y, stride_x),
                                  groups,
                                  input_floats(dy),
                                  input_floats(x),
                                  input_floats(z),
                                  input_floats(weight),
                                  shift_of(bias, x, shape),
                                  input_floats(norm_weight),
                                  mean,
                                  mean + shape.samples * shape.groups,
                                  static_cast<const unsigned*>(magnitudes.data_ptr())};
  Wanted dx, dweight, dbias, dnorm_weight, dnorm_bias;
  if (wants_x) dx = torch::stable::empty_like(x);
  if (wants_weight) dweight = torch::stable::empty_like(weight);
  if (wants_bias) dbias = torch::stable::empty_like(norm_weight);
  if (wants_norm_weight) dnorm_weight = torch::stable::empty_like(norm_weight);
  if (wants_norm_bias) dnorm_bias = torch::stable::empty_like(norm_weight);
  const DenseGradients found = {floats_or_null(dx), floats_or_null(dweight), floats_or_null(dbias),
                                floats_or_null(dnorm_weight), floats_or_null(dnorm_bias)};
  const int device = x.get_device_index();
  Tensor scratch =
      torch::stable::new_empty(x, {gradients_scratch(backward, device)}, torch::headeronly::ScalarType::Byte);
  check_launch(launch_gradients(backward, found, static_cast<uint8_t*>(scratch.data_ptr()), device,
                                current_stream(x)));
  return {dx, dweight, dbias, dnorm_weight, dnorm_bias};
}
