// The sizes of a transposed convolution from (height, width) without padding; the kernels count pixels in 32 bits.
Axis axis_of(int64_t coarse, int64_t kernel, int64_t stride) {
  constexpr int64_t kMost = 1 << 30;
  STD_TORCH_CHECK(coarse > 0 && kernel > 0 && stride > 0, "heights, widths, kernels and strides must be positive");
  STD_TORCH_CHECK(kernel < kMost && stride < kMost && (coarse - 1) < kMost / stride, "a row or column of ", coarse,
                  " pixels with stride ", stride, " is more than the kernels count");
  return {static_cast<int>(coarse), static_cast<int>((coarse - 1) * stride + kernel), static_cast<int>(kernel),
          static_cast<int>(stride), static_cast<int>((kernel + stride - 1) / stride)};
}

Convolution convolution_of(int64_t samples, int64_t coarse_channels, int64_t fine_channels, const Axis& y,
                           const Axis& x) {
  constexpr int64_t kMost = 1 << 30;
  const int64_t coarse_plane = static_cast<int64_t>(y.coarse) * x.coarse;
  const int64_t fine_plane = static_cast<int64_t>(y.fine) * x.fine;
  STD_TORCH_CHECK(fine_plane < kMost && static_cast<int64_t>(y.stride) * x.stride < kMost, "an image of ", y.fine,
                  " x ", x.fine, " pixels is more than the kernels count");
  STD_TORCH_CHECK(coarse_channels < kMost && fine_channels < kMost, "there are more channels than the kernels count");
  return {samples, static_cast<int>(coarse_channels), static_cast<int>(fine_channels), y,
          x,       static_cast<int>(coarse_plane),    static_cast<int>(fine_plane)};
}

void check_images(const Tensor& images, const Tensor& x, const char* name) {
  check_float_input(images, x, name);
  STD_TORCH_CHECK(images.dim() == 4, name, " must be (batch, channels, height, width), got ", images.dim(),
                  " dimension(s)");
}

void check_fine(const Tensor& fine, const Convolution& convolution) {
  STD_TORCH_CHECK(
      fine.size(0) == convolution.samples && fine.size(2) == convolution.y.fine && fine.size(3) == convolution.x.fine,
      "the gradient of the convolution must be (", convolution.samples, ", channels, ", convolution.y.fine, ", ",
      convolution.x.fine, ")");
}

// The convolution of x, whose weights are `taps` (kernel_y, kernel_x, in, out).
Convolution convolution_to_fine(const Tensor& x, const Tensor& taps, const Tensor& bias, int64_t stride_y,
                                int64_t stride_x) {
  check_images(x, x, "x");
  check_float_input(taps, x, "the weights of the convolution");
  check_float_input(bias, x, "the bias of the convolution");
  STD_TORCH_CHECK(taps.dim() == 4 && taps.size(2) == x.size(1), "x must have ", taps.size(2), " channels, got ",
                  x.size(1));
  STD_TORCH_CHECK(bias.numel() == taps.size(3), "the bias of the convolution must have ", taps.size(3), " elements");
  return convolution_of(x.size(0), x.size(1), taps.size(3), axis_of(x.size(2), taps.size(0), stride_y),
                        axis_of(x.size(3), taps.size(1), stride_x));
}

// dx (batch, in, height, width) from dz and `taps` (kernel_y, kernel_x, out, in).
Tensor to_coarse(const Tensor& dz, const Tensor& taps, int64_t height, int64_t width, int64_t stride_y,
                 int64_t stride_x) {
  check_images(dz, dz, "the gradient of the convolution");
  check_float_input(taps, dz, "the weights of the convolution");
  STD_TORCH_CHECK(taps.dim() == 4 && taps.size(2) == dz.size(1), "the gradient of the convolution must have ",
                  taps.size(2), " channels, got ", dz.size(1));
  const Convolution convolution =
      convolution_of(dz.size(0), taps.size(3), dz.size(1), axis_of(height, taps.size(0), stride_y),
                     axis_of(width, taps.size(1), stride_x));
  check_fine(dz, convolution);
  Tensor dx = torch::stable::new_empty(dz, {dz.size(0), taps.size(3), height, width});
  check_launch(launch_to_coarse(input_floats(dz), input_floats(taps), convolution, output_floats(dx),
                                dz.get_device_index(), current_stream(dz)));
  return dx;
}

// dweight (in, out, kernel_y, kernel_x) from x and dz.
Tensor weight_gradient(const Tensor& x, const Tensor& dz, int64_t kernel_y, int64_t kernel_x, int64_t stride_y,
                       int64_t stride_x) {
  check_images(x, x, "x");
  check_images(dz, x, "the gradient of the convolution");
  const Convolution convolution = convolution_of(
      x.size(0), x.size(1), dz.size(1), axis_of(x.size(2), kernel_y, stride_y), axis_of(x.size(3), kernel_x, stride_x));
  check_fine(dz, convolution);
  Tensor dweight = torch::stable::new_empty(x, {x.size(1), dz.size(1), kernel_y, kernel_x});
  Tensor scratch = torch::stable::new_empty(x, {weight_gradient_scratch(convolution)});
  check_launch(launch_weight_gradient(input_floats(x), input_floats(dz), convolution, output_floats(dweight),
                                      output_floats(scratch), x.get_device_index(), current_stream(x)));
  return dweight;
}
