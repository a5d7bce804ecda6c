namespace OP_NAMESPACE {

{% include "common/group_norm/shape_of.h" %}

{% if shifted %}
Shift shift_of(const Tensor& bias, const Tensor& z, const Shape& shape) {
  check_float_input(bias, z, "the bias of the convolution");
  STD_TORCH_CHECK(bias.numel() == shape.channels, "the bias of the convolution must have ", shape.channels,
                  " elements");
  return {input_floats(bias)};
}

{% endif %}
{% if passes %}
// y like z, and statistics (2, batch, groups): mean and 1 / sqrt(variance + eps) of GELU{{ ", after the convolution's bias" if shifted else "" }}.
{% if shifted %}
std::tuple<Tensor, Tensor> forward(const Tensor& z, const Tensor& convolution_bias, const Tensor& weight,
                                   const Tensor& bias, int64_t groups, double eps) {
  const Shape shape = shape_of(z, weight, groups);
  const Shift shift = shift_of(convolution_bias, z, shape);
{% else %}
std::tuple<Tensor, Tensor> forward(const Tensor& z, const Tensor& weight, const Tensor& bias, int64_t groups,
                                   double eps) {
  const Shape shape = shape_of(z, weight, groups);
{% endif %}
  check_float_input(z, z, "z");
  check_float_input(weight, z, "weight");
  check_float_input(bias, z, "bias");
  STD_TORCH_CHECK(bias.numel() == shape.channels, "bias must have ", shape.channels, " elements");
  Tensor y = torch::stable::empty_like(z);
  Tensor statistics = torch::stable::new_empty(z, {2, shape.samples, shape.groups});
  float* mean = output_floats(statistics);
  float* rstd = mean + shape.samples * shape.groups;
  Tensor scratch = torch::stable::new_empty(z, {forward_scratch(shape)});
  check_launch(launch_forward(input_floats(z), {% if shifted %}shift, {% endif %}input_floats(weight), input_floats(bias), shape,
                              static_cast<float>(eps), output_floats(y), mean, rstd, output_floats(scratch),
                              z.get_device_index(), current_stream(z)));
  return {y, statistics};
}

{% endif %}
{% if gathers and not pitched %}
// y like z, and statistics (2, batch, groups): mean and 1 / sqrt(variance + eps) of GELU, from its moments
// (batch, channels, parts, 3).
std::tuple<Tensor, Tensor> forward(const Tensor& z, const Tensor& moments, const Tensor& weight, const Tensor& bias,
                                   int64_t groups, double eps) {
  const Shape shape = shape_of(z, weight, groups);
  check_float_input(moments, z, "moments");
  STD_TORCH_CHECK(moments.dim() == 4 && moments.size(0) == shape.samples && moments.size(1) == shape.channels,
                  "moments must be (batch, channels, parts, 3)");
  check_float_input(z, z, "z");
  check_float_input(weight, z, "weight");
  check_float_input(bias, z, "bias");
  STD_TORCH_CHECK(bias.numel() == shape.channels, "bias must have ", shape.channels, " elements");
  Tensor y = torch::stable::empty_like(z);
  Tensor statistics = torch::stable::new_empty(z, {2, shape.samples, shape.groups});
  float* mean = output_floats(statistics);
  float* rstd = mean + shape.samples * shape.groups;
  check_launch(launch_forward_gathered(input_floats(z), input_floats(moments), moments.size(2),
                                       input_floats(weight), input_floats(bias), shape, static_cast<float>(eps),
                                       output_floats(y), mean, rstd, z.get_device_index(), current_stream(z)));
  return {y, statistics};
}

{% endif %}
using Wanted = std::optional<Tensor>;

float* floats_or_null(Wanted& tensor) { return tensor ? output_floats(*tensor) : nullptr; }

// The wanted gradients: of z, of the group norm's weight and bias, and of the convolution's bias, which is added to z.
{% if shifted %}
std::tuple<Wanted, Wanted, Wanted, Wanted> backward(const Tensor& dy, const Tensor& z,
                                                    const Tensor& convolution_bias, const Tensor& weight,
                                                    const Tensor& statistics, int64_t groups, bool wants_z,
                                                    bool wants_weight, bool wants_bias, bool wants_shift) {
  const Shape shape = shape_of(z, weight, groups);
  const Shift shift = shift_of(convolution_bias, z, shape);
{% else %}
std::tuple<Wanted, Wanted, Wanted, Wanted> backward(const Tensor& dy, const Tensor& z, const Tensor& weight,
                                                    const Tensor& statistics, int64_t groups, bool wants_z,
                                                    bool wants_weight, bool wants_bias, bool wants_shift) {
  const Shape shape = shape_of(z, weight, groups);
{% endif %}
  check_float_input(dy, z, "the gradient of y");
  check_float_input(z, z, "z");
  check_float_input(weight, z, "weight");
  check_float_input(statistics, z, "statistics");
  STD_TORCH_CHECK(dy.numel() == z.numel(), "the gradient of y must have the shape of y");
  STD_TORCH_CHECK(statistics.numel() == 2 * shape.samples * shape.groups, "statistics must be (2, batch, groups)");
  STD_TORCH_CHECK(wants_z || !wants_shift, "the gradient of the convolution's bias wants that of z");
  Wanted dz, dweight, dbias, dshift;
  if (wants_z) dz = torch::stable::empty_like(z);
  if (wants_weight) dweight = torch::stable::empty_like(weight);
  if (wants_bias) dbias = torch::stable::empty_like(weight);
  if (wants_shift) dshift = torch::stable::empty_like(weight);
  const Gradients gradients = {floats_or_null(dz), floats_or_null(dweight), floats_or_null(dbias),
                               floats_or_null(dshift)};
  Tensor scratch = torch::stable::new_empty(z, {backward_scratch(shape)});
  const float* mean = input_floats(statistics);
  check_launch(launch_backward(input_floats(dy), input_floats(z), {% if shifted %}shift, {% endif %}input_floats(weight), mean,
                               mean + shape.samples * shape.groups, shape, gradients, output_floats(scratch),
                               z.get_device_index(), current_stream(z)));
  return {dz, dweight, dbias, dshift};
}
{% if convolution == "direct" %}

{% include "common/transposed_convolution/binding.h" %}

{% if gelu == "epilogue" %}
// z (batch, out, fine height, fine width) of x, and the moments of GELU (batch, out, parts, 3).
std::tuple<Tensor, Tensor> to_fine(const Tensor& x, const Tensor& taps, const Tensor& bias, int64_t stride_y,
                                   int64_t stride_x) {
  const Convolution convolution = convolution_to_fine(x, taps, bias, stride_y, stride_x);
  Tensor z =
      torch::stable::new_empty(x, {x.size(0), taps.size(3), convolution.y.fine, convolution.x.fine});
  Tensor moments = torch::stable::new_empty(x, {x.size(0), taps.size(3), moments_of_channel(convolution), 3});
  check_launch(launch_to_fine(input_floats(x), input_floats(taps), input_floats(bias), convolution, output_floats(z),
                              output_floats(moments), x.get_device_index(), current_stream(x)));
  return {z, moments};
}
{% else %}
// z (batch, out, fine height, fine width) of x.
Tensor to_fine(const Tensor& x, const Tensor& taps, const Tensor& bias, int64_t stride_y, int64_t stride_x) {
  const Convolution convolution = convolution_to_fine(x, taps, bias, stride_y, stride_x);
  Tensor z =
      torch::stable::new_empty(x, {x.size(0), taps.size(3), convolution.y.fine, convolution.x.fine});
  check_launch(launch_to_fine(input_floats(x), input_floats(taps), input_floats(bias), convolution, output_floats(z),
                              nullptr, x.get_device_index(), current_stream(x)));
  return z;
}
{% endif %}
{% endif %}
{% if convolution == "tensor" %}

{% include "common/transposed_convolution/tensor/binding.h" %}
{% endif %}

}  // namespace OP_NAMESPACE

STABLE_TORCH_LIBRARY(OP_NAMESPACE, m) {
{% if shifted %}
  m.def(
      "forward(Tensor z, Tensor convolution_bias, Tensor weight, Tensor bias, int groups, float eps) -> "
      "(Tensor, Tensor)");
  m.def(
      "backward(Tensor dy, Tensor z, Tensor convolution_bias, Tensor weight, Tensor statistics, int groups, "
      "bool wants_z, bool wants_weight, bool wants_bias, bool wants_shift) -> (Tensor?, Tensor?, Tensor?, Tensor?)");
{% else %}
{% if gelu == "epilogue" %}
  m.def("forward(Tensor z, Tensor moments, Tensor weight, Tensor bias, int groups, float eps) -> (Tensor, Tensor)");
{% else %}
  m.def("forward(Tensor z, Tensor weight, Tensor bias, int groups, float eps) -> (Tensor, Tensor)");
{% endif %}
  m.def(
      "backward(Tensor dy, Tensor z, Tensor weight, Tensor statistics, int groups, bool wants_z, bool wants_weight, "
      "bool wants_bias, bool wants_shift) -> (Tensor?, Tensor?, Tensor?, Tensor?)");
{% endif %}
{% if convolution == "tensor" %}
  m.def(
      "gradients(Tensor dy, Tensor x, Tensor z, Tensor weight, Tensor bias, Tensor norm_weight, Tensor statistics, "
      "Tensor magnitudes, int stride_y, int stride_x, int groups, bool wants_x, bool wants_weight, bool wants_bias, "
      "bool wants_norm_weight, bool wants_norm_bias) -> (Tensor?, Tensor?, Tensor?, Tensor?, Tensor?)");
  m.def(
      "convolve(Tensor x, Tensor weight, Tensor bias, Tensor norm_weight, Tensor norm_bias, int stride_y, "
      "int stride_x, int groups, float eps) -> (Tensor?, Tensor?, Tensor?, Tensor?)");
{% endif %}
{% if convolution == "direct" %}
{% if gelu == "epilogue" %}
  m.def("to_fine(Tensor x, Tensor taps, Tensor bias, int stride_y, int stride_x) -> (Tensor, Tensor)");
{% else %}
  m.def("to_fine(Tensor x, Tensor taps, Tensor bias, int stride_y, int stride_x) -> Tensor");
{% endif %}
  m.def("to_coarse(Tensor dz, Tensor taps, int height, int width, int stride_y, int stride_x) -> Tensor");
  m.def(
      "weight_gradient(Tensor x, Tensor dz, int kernel_y, int kernel_x, int stride_y, int stride_x) -> Tensor");
{% endif %}
}

STABLE_TORCH_LIBRARY_IMPL(OP_NAMESPACE, CUDA, m) {
  m.impl("forward", TORCH_BOX(&OP_NAMESPACE::forward));
  m.impl("backward", TORCH_BOX(&OP_NAMESPACE::backward));
{% if convolution == "tensor" %}
  m.impl("gradients", TORCH_BOX(&OP_NAMESPACE::gradients));
  m.impl("convolve", TORCH_BOX(&OP_NAMESPACE::convolve));
{% endif %}
{% if convolution == "direct" %}
  m.impl("to_fine", TORCH_BOX(&OP_NAMESPACE::to_fine));
  m.impl("to_coarse", TORCH_BOX(&OP_NAMESPACE::to_coarse));
  m.impl("weight_gradient", TORCH_BOX(&OP_NAMESPACE::weight_gradient));
{% endif %}
}
