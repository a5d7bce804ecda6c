{% set rows = 3 if fusion == "streamed" else 2 %}
namespace OP_NAMESPACE {

using torch::headeronly::ScalarType;

template <typename T>
constexpr ScalarType scalar_type_of() {
#if HALVES
  if constexpr (std::is_same_v<T, __half>) return ScalarType::Half;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return ScalarType::BFloat16;
#endif
  return ScalarType::Float;
}

// A tensor's data, which are T's, contiguous and on the device of x.
template <typename T>
const T* input(const Tensor& tensor, const Tensor& x, const char* name) {
  STD_TORCH_CHECK(tensor.scalar_type() == scalar_type_of<T>(), name, " has another dtype than these kernels are for");
  STD_TORCH_CHECK(tensor.get_device_index() == x.get_device_index(), name, " must be on the device of x");
  STD_TORCH_CHECK(tensor.is_contiguous(), name, " must be contiguous");
  return static_cast<const T*>(tensor.data_ptr());
}

template <typename T>
T* output(const std::optional<Tensor>& tensor) {
  return tensor ? static_cast<T*>(tensor->data_ptr()) : nullptr;
}

inline Tensor new_floats(const Tensor& x, std::initializer_list<int64_t> shape) {
  return torch::stable::new_empty(x, shape, ScalarType::Float);
}

constexpr int64_t kStatistics = {{ rows }};

{% include "common/group_norm/shape_of.h" %}

// y like x, and statistics ({{ rows }}, batch, groups), float: mean, 1 / sqrt(variance + eps){% if rows == 3 %}, and what the mean's float lacks{% endif %}.
std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t groups,
                                   double eps) {
  const Element* from = input<Element>(x, x, "x");
  const Weight* weights = input<Weight>(weight, x, "weight");
  const Weight* biases = input<Weight>(bias, x, "bias");
  const Shape shape = shape_of(x, weight, groups);
  STD_TORCH_CHECK(bias.numel() == shape.channels, "bias must have ", shape.channels, " elements");
  Tensor y = torch::stable::empty_like(x);
  Tensor statistics = new_floats(x, {kStatistics, shape.samples, shape.groups});
  std::optional<Tensor> scratch;
  const int64_t scratch_floats = forward_scratch(shape);
  if (scratch_floats > 0) scratch = new_floats(x, {scratch_floats});
  float* mean = output_floats(statistics);
  check_launch(launch_forward(from, weights, biases, shape, static_cast<float>(eps), output<Element>(y), mean,
                              mean + shape.samples * shape.groups, output<float>(scratch), x.get_device_index(),
                              current_stream(x)));
  return {y, statistics};
}

// The wanted ones of dx like x, dweight and dbias (channels).
std::tuple<std::optional<Tensor>, std::optional<Tensor>, std::optional<Tensor>> backward(
    const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& statistics, int64_t groups, bool wants_dx,
    bool wants_dweight, bool wants_dbias) {
  const Element* from = input<Element>(x, x, "x");
  const Element* cotangent = input<Element>(dy, x, "the gradient of y");
  const Weight* weights = input<Weight>(weight, x, "weight");
  check_float_input(statistics, x, "statistics");
  const float* mean = input_floats(statistics);
  const Shape shape = shape_of(x, weight, groups);
  STD_TORCH_CHECK(dy.numel() == x.numel(), "the gradient of y must have the shape of x");
  STD_TORCH_CHECK(statistics.numel() == kStatistics * shape.samples * shape.groups,
                  "statistics must be (", kStatistics, ", batch, groups)");
  std::optional<Tensor> dx, dweight, dbias;
  if (wants_dx) dx = torch::stable::empty_like(x);
  if (wants_dweight) dweight = torch::stable::empty_like(weight);
  if (wants_dbias) dbias = torch::stable::empty_like(weight);
  Tensor scratch = new_floats(x, {backward_scratch(shape)});
  const Gradients gradients = {output<Element>(dx), output<Weight>(dweight), output<Weight>(dbias)};
  check_launch(launch_backward(cotangent, from, weights, mean, mean + shape.samples * shape.groups, shape,
                               gradients, output_floats(scratch), x.get_device_index(), current_stream(x)));
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
