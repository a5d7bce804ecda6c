{% set rows = 3 if fusion == "streamed" else 2 %}
namespace OP_NAMESPACE {

constexpr int64_t kStatistics = {{ rows }};

{% include "common/group_norm/shape_of.h" %}

// y like x, and statistics ({{ rows }}, batch, groups): mean, 1 / sqrt(variance + eps){% if rows == 3 %}, and what the mean's float lacks{% endif %}.
std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups,
                                   double eps) {
  check_float_input(x, x, "x");
  check_float_input(weight, x, "weight");
  check_float_input(bias, x, "bias");
  const Shape shape = shape_of(x, weight, groups);
  STD_TORCH_CHECK(bias.numel() == shape.channels, "bias must have ", shape.channels, " elements");
  Tensor y = torch::stable::empty_like(x);
  Tensor statistics = torch::stable::new_empty(x, {kStatistics, shape.samples, shape.groups});
  std::optional<Tensor> scratch;
  const int64_t scratch_floats = forward_scratch(shape);
  if (scratch_floats > 0) scratch = torch::stable::new_empty(x, {scratch_floats});
  float* mean = output_floats(statistics);
  check_launch(launch_forward(input_floats(x), Shift{}, input_floats(weight), input_floats(bias), shape,
                              static_cast<float>(eps), output_floats(y), mean, mean + shape.samples * shape.groups,
                              scratch ? output_floats(*scratch) : nullptr, x.get_device_index(),
                              current_stream(x)));
  return {y, statistics};
}

// The wanted ones of dx like x, dweight and dbias (channels).
std::tuple<std::optional<Tensor>, std::optional<Tensor>, std::optional<Tensor>> backward(
    const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& statistics, int64_t groups, bool wants_dx,
    bool wants_dweight, bool wants_dbias) {
  check_float_input(dy, x, "the gradient of y");
  check_float_input(x, x, "x");
  check_float_input(weight, x, "weight");
  check_float_input(statistics, x, "statistics");
  const Shape shape = shape_of(x, weight, groups);
  STD_TORCH_CHECK(dy.numel() == x.numel(), "the gradient of y must have the shape of x");
  STD_TORCH_CHECK(statistics.numel() == kStatistics * shape.samples * shape.groups,
                  "statistics must be (", kStatistics, ", batch, groups)");
  std::optional<Tensor> dx, dweight, dbias;
  if (wants_dx) dx = torch::stable::empty_like(x);
  if (wants_dweight) dweight = torch::stable::empty_like(weight);
  if (wants_dbias) dbias = torch::stable::empty_like(weight);
  Tensor scratch = torch::stable::new_empty(x, {backward_scratch(shape)});
  const float* mean = input_floats(statistics);
  const Gradients gradients = {dx ? output_floats(*dx) : nullptr, dweight ? output_floats(*dweight) : nullptr,
                               dbias ? output_floats(*dbias) : nullptr, nullptr};
  check_launch(launch_backward(input_floats(dy), input_floats(x), Shift{}, input_floats(weight), mean,
                               mean + shape.samples * shape.groups, shape, gradients, output_floats(scratch),
                               x.get_device_index(), current_stream(x)));
  return {dx, dweight, dbias};
}

}  // namespace OP_NAMESPACE

STABLE_TORCH_LIBRARY(OP_NAMESPACE, m) {
  m.def("forward(Tensor x, Tensor weight, Tensor bias, int groups, float eps) -> (Tensor, Tensor)");
  m.def(
      "backward(Tensor dy, Tensor x, Tensor weight, Tensor statistics, int groups, bool wants_dx, "
      "bool wants_dweight, bool wants_dbias) -> (Tensor?, Tensor?, Tensor?)");
}

STABLE_TORCH_LIBRARY_IMPL(OP_NAMESPACE, CUDA, m) {
  m.impl("forward", TORCH_BOX(&OP_NAMESPACE::forward));
  m.impl("backward", TORCH_BOX(&OP_NAMESPACE::backward));
}
