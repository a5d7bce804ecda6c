#include <vector>

namespace OP_NAMESPACE {

constexpr auto kInt = torch::headeronly::ScalarType::Int;

void check_matrix(const Tensor& tensor, const Tensor& x, const char* name) {
  check_float_input(tensor, x, name);
  STD_TORCH_CHECK(tensor.dim() == 2, name, " must have 2 dimensions, got ", tensor.dim());
}

void check_vector(const Tensor& tensor, const Tensor& x, int64_t length, const char* name) {
  check_float_input(tensor, x, name);
  STD_TORCH_CHECK(tensor.dim() == 1 && tensor.size(0) == length, name, " must have ", length, " elements");
}

Shape checked_shape(int64_t rows, int64_t columns, int64_t groups) {
  STD_TORCH_CHECK(groups > 0 && columns > 0 && columns % groups == 0, columns, " features cannot be divided into ",
                  groups, " groups");
  STD_TORCH_CHECK(columns <= 0x7fffffff, columns, " features are more than the kernels count");
  STD_TORCH_CHECK(rows <= 0x3fffffff, rows, " samples are more than the kernels count");
  return {rows, columns, groups};
}

// The dimensions of what minima (rows, 1) and a bias broadcast to: those of the bias, but its last but one.
std::vector<int64_t> broadcast_sizes(int64_t rows, const Tensor& bias) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < bias.dim(); ++i) sizes.push_back(bias.size(i));
  while (sizes.size() < 2) sizes.insert(sizes.begin(), 1);
  int64_t& height = sizes[sizes.size() - 2];
  STD_TORCH_CHECK(rows == 1 || height == 1 || height == rows, "the bias, with ", height,
                  " elements along its last dimension but one, does not broadcast to ", rows, " samples");
  if (rows != 1) height = rows;
  return sizes;
}

// One row's y is its minimum plus the bias as it lies.
Broadcast broadcast_of(int64_t rows, const Tensor& bias) {
  check_float_input(bias, bias, "bias");
  if (rows == 1) return {input_floats(bias), 1, 1, bias.numel(), 0};
  const int64_t inner = bias.dim() > 0 ? bias.size(bias.dim() - 1) : 1;
  const int64_t height = bias.dim() > 1 ? bias.size(bias.dim() - 2) : 1;
  int64_t outer = 1;
  for (int64_t i = 0; i + 2 < bias.dim(); ++i) outer *= bias.size(i);
  return {input_floats(bias), outer, rows, inner, height == 1 ? 0 : inner};
}

using Wanted = std::optional<Tensor>;

float* floats_or_null(Wanted& tensor) { return tensor ? output_floats(*tensor) : nullptr; }

// y and, where it is kept for the backward, the column of each row's minimum.
std::tuple<Tensor, Wanted> forward(const Tensor& product, const Tensor& linear_bias, const Tensor& norm_weight,
                                   const Tensor& norm_bias, const Tensor& bias, const std::optional<Tensor>& moments,
                                   int64_t groups, double eps, bool keep) {
  check_matrix(product, product, "the product");
  const Shape shape = checked_shape(product.size(0), product.size(1), groups);
  check_vector(linear_bias, product, shape.columns, "the bias of the linear layer");
  check_vector(norm_weight, product, shape.columns, "the weight of the group norm");
  check_vector(norm_bias, product, shape.columns, "the bias of the group norm");
  check_float_input(bias, product, "bias");
  const std::vector<int64_t> sizes = broadcast_sizes(shape.rows, bias);
  Tensor y = torch::stable::new_empty(product, sizes);
  Tensor minima = torch::stable::new_empty(product, {shape.rows});
  Wanted winners;
  if (keep) winners = torch::stable::new_empty(product, {shape.rows}, kInt);
  const Normalisation normalisation = {input_floats(product),   input_floats(linear_bias),
                                       input_floats(norm_weight), input_floats(norm_bias),
                                       moments ? input_floats(*moments) : nullptr,
                                       shape,                   static_cast<float>(eps)};
  check_launch(launch_forward(normalisation, broadcast_of(shape.rows, bias), output_floats(y),
                              winners ? static_cast<int*>(winners->data_ptr()) : nullptr, output_floats(minima),
                              product.get_device_index(), current_stream(product)));
  return {y, winners};
}

// The gradient of y, seen as (outer, rows, inner), whatever its strides.
Cotangent cotangent_of(const Tensor& dy) {
  STD_TORCH_CHECK(dy.scalar_type() == torch::headeronly::ScalarType::Float && dy.dim() == 3,
                  "the gradient of y must be float32 and (outer, rows, inner)");
  return {input_floats(dy), dy.size(0),   dy.size(1),  dy.size(2),
          dy.stride(0),     dy.stride(1), dy.stride(2)};
}

// The gradient of a bias (outer, 1, inner).
Tensor bias_gradient(const Tensor& dy) {
  const Cotangent cotangent = cotangent_of(dy);
  Tensor dbias = torch::stable::new_empty(dy, {cotangent.outer * cotangent.inner});
  Tensor scratch = torch::stable::new_empty(dy, {cotangent_scratch(cotangent)});
  check_launch(launch_cotangent_sums(cotangent, nullptr, output_floats(dbias), output_floats(scratch),
                                     dy.get_device_index(), current_stream(dy)));
  return dbias;
}

// The wanted gradients: of the bias (outer, 1, inner), of the linear layer's bias, of the group norm's weight and bias,
{% if backward == "sparse" %}
// and of x and the weight of the linear layer.
std::tuple<Wanted, Wanted, Wanted, Wanted, Wanted, Wanted> backward(
    const Tensor& dy, const Tensor& columns, const Tensor& x, const Tensor& weight, const Tensor& linear_bias,
    const Tensor& norm_weight, int64_t groups, double eps, bool wants_bias, bool wants_linear_bias,
    bool wants_norm_weight, bool wants_norm_bias, bool wants_x, bool wants_weight) {
{% else %}
// and of z, in full.
std::tuple<Wanted, Wanted, Wanted, Wanted, Wanted> backward(
    const Tensor& dy, const Tensor& columns, const Tensor& x, const Tensor& weight, const Tensor& linear_bias,
    const Tensor& norm_weight, int64_t groups, double eps, bool wants_bias, bool wants_linear_bias,
    bool wants_norm_weight, bool wants_norm_bias, bool wants_z) {
{% endif %}
  const Cotangent cotangent = cotangent_of(dy);
  check_matrix(x, dy, "x");
  check_matrix(weight, dy, "the weight of the linear layer");
  const Shape shape = checked_shape(cotangent.rows, weight.size(0), groups);
  check_vector(linear_bias, dy, shape.columns, "the bias of the linear layer");
  check_vector(norm_weight, dy, shape.columns, "the weight of the group norm");
  STD_TORCH_CHECK(columns.numel() == shape.rows && columns.scalar_type() == kInt && x.size(0) == shape.rows &&
                      x.size(1) == weight.size(1),
                  "what forward kept does not have the shape of the gradient of y");
  const int device = dy.get_device_index();
  void* const stream = current_stream(dy);
  Wanted dbias, dlinear_bias, dnorm_weight, dnorm_bias;
  if (wants_bias) dbias = torch::stable::new_empty(dy, {cotangent.outer * cotangent.inner});
  if (wants_linear_bias) dlinear_bias = torch::stable::empty_like(norm_weight);
  if (wants_norm_weight) dnorm_weight = torch::stable::empty_like(norm_weight);
  if (wants_norm_bias) dnorm_bias = torch::stable::empty_like(norm_weight);
  const int64_t length = shape.columns / groups;
  Tensor z = torch::stable::new_empty(dy, {shape.rows, length}, torch::headeronly::ScalarType::Double);
  Tensor floats = torch::stable::new_empty(dy, {2 * shape.rows + shape.rows * length + cotangent_scratch(cotangent)});
  Tensor ints = torch::stable::new_empty(dy, {shape.rows + 3 * groups + 2}, kInt);
  int* const order = static_cast<int*>(ints.data_ptr());
  Workspace workspace;
  workspace.dz = output_floats(floats);
  workspace.minima = workspace.dz + shape.rows * length;
  workspace.norm_weight = workspace.minima + shape.rows;
  workspace.z = static_cast<double*>(z.data_ptr());
  workspace.order = order;
  workspace.begins = order + shape.rows;
  workspace.listed = workspace.begins + groups + 1;
  workspace.cursors = workspace.listed + groups + 1;
  const Winners winners = {static_cast<const int*>(columns.data_ptr()), input_floats(x), input_floats(weight),
                           input_floats(linear_bias), input_floats(norm_weight), x.size(1)};
  const Gradients gradients = {floats_or_null(dlinear_bias), floats_or_null(dnorm_weight), floats_or_null(dnorm_bias)};
  check_launch(launch_cotangent_sums(cotangent, workspace.minima, floats_or_null(dbias),
                                     workspace.norm_weight + shape.rows, device, stream));
  check_launch(launch_group_gradients(winners, shape, eps, workspace, gradients, device, stream));
{% if backward == "sparse" %}
  Wanted dx, dweight;
  if (wants_x) {
    dx = torch::stable::empty_like(x);
    check_launch(launch_input_gradient(winners, workspace, shape, output_floats(*dx), device, stream));
  }
  if (wants_weight) {
    dweight = torch::stable::empty_like(weight);
    check_launch(launch_weight_gradient(winners, workspace, shape, output_floats(*dweight), device, stream));
  }
  return {dbias, dlinear_bias, dnorm_weight, dnorm_bias, dx, dweight};
}
{% else %}
  Wanted dz;
  if (wants_z) {
    dz = torch::stable::new_empty(dy, {shape.rows, shape.columns});
    check_launch(launch_spread(winners, workspace, shape, output_floats(*dz), device, stream));
  }
  return {dbias, dlinear_bias, dnorm_weight, dnorm_bias, dz};
}
{% endif %}
{% if gemm == "tiled" %}

// z (batch, out) = x (batch, in) times weight (out, in) transposed, plus the bias.
{% if statistics == "epilogue" %}
// Beside it, the moments of its groups' parts.
{% endif %}
std::tuple<Tensor, Wanted> linear(const Tensor& x, const Tensor& weight, const Tensor& linear_bias, int64_t groups) {
  check_matrix(x, x, "x");
  check_matrix(weight, x, "the weight of the linear layer");
  STD_TORCH_CHECK(x.size(1) == weight.size(1), "x must have ", weight.size(1), " features, got ", x.size(1));
  check_vector(linear_bias, x, weight.size(0), "the bias of the linear layer");
  const Shape shape = checked_shape(x.size(0), weight.size(0), groups);
  const Product product = {input_floats(x), input_floats(weight), shape.rows, shape.columns, x.size(1)};
  Tensor z = torch::stable::new_empty(x, {shape.rows, shape.columns});
  Wanted moments;
{% if statistics == "epilogue" %}
  moments = torch::stable::new_empty(x, {shape.rows, moments_of_row(shape)});
{% endif %}
  check_launch(launch_linear(product, input_floats(linear_bias), shape, output_floats(z), floats_or_null(moments),
                             x.get_device_index(), current_stream(x)));
  return {z, moments};
}
{% if backward == "dense" %}

// dx (batch, in) = dz (batch, out) times weight (out, in).
Tensor input_product(const Tensor& dz, const Tensor& weight) {
  check_matrix(dz, dz, "dz");
  check_matrix(weight, dz, "the weight of the linear layer");
  STD_TORCH_CHECK(dz.size(1) == weight.size(0), "dz must have ", weight.size(0), " columns, got ", dz.size(1));
  const Product product = {input_floats(dz), input_floats(weight), dz.size(0), weight.size(1), dz.size(1)};
  Tensor dx = torch::stable::new_empty(dz, {product.m, product.n});
  check_launch(launch_input_product(product, output_floats(dx), dz.get_device_index(), current_stream(dz)));
  return dx;
}

// dweight (out, in) = dz (batch, out) transposed times x (batch, in).
Tensor weight_product(const Tensor& dz, const Tensor& x) {
  check_matrix(dz, dz, "dz");
  check_matrix(x, dz, "x");
  STD_TORCH_CHECK(dz.size(0) == x.size(0), "dz must have ", x.size(0), " rows, got ", dz.size(0));
  const Product product = {input_floats(dz), input_floats(x), dz.size(1), x.size(1), dz.size(0)};
  Tensor dweight = torch::stable::new_empty(dz, {product.m, product.n});
  check_launch(launch_weight_product(product, output_floats(dweight), dz.get_device_index(), current_stream(dz)));
  return dweight;
}
{% endif %}
{% endif %}
{% if gemm == "split" %}

{% include "common/product/split/binding.h" %}
{% endif %}

}  // namespace OP_NAMESPACE

STABLE_TORCH_LIBRARY(OP_NAMESPACE, m) {
  m.def(
      "forward(Tensor product, Tensor linear_bias, Tensor norm_weight, Tensor norm_bias, Tensor bias, Tensor? moments, "
      "int groups, float eps, bool keep) -> (Tensor, Tensor?)");
  m.def("bias_gradient(Tensor dy) -> Tensor");
{% if backward == "sparse" %}
  m.def(
      "backward(Tensor dy, Tensor columns, Tensor x, Tensor weight, Tensor linear_bias, Tensor norm_weight, "
      "int groups, float eps, bool wants_bias, bool wants_linear_bias, bool wants_norm_weight, bool wants_norm_bias, "
      "bool wants_x, bool wants_weight) -> (Tensor?, Tensor?, Tensor?, Tensor?, Tensor?, Tensor?)");
{% else %}
  m.def(
      "backward(Tensor dy, Tensor columns, Tensor x, Tensor weight, Tensor linear_bias, Tensor norm_weight, "
      "int groups, float eps, bool wants_bias, bool wants_linear_bias, bool wants_norm_weight, bool wants_norm_bias, "
      "bool wants_z) -> (Tensor?, Tensor?, Tensor?, Tensor?, Tensor?)");
{% endif %}
{% if gemm == "tiled" %}
  m.def("linear(Tensor x, Tensor weight, Tensor linear_bias, int groups) -> (Tensor, Tensor?)");
{% if backward == "dense" %}
  m.def("input_product(Tensor dz, Tensor weight) -> Tensor");
  m.def("weight_product(Tensor dz, Tensor x) -> Tensor");
{% endif %}
{% endif %}
{% if gemm == "split" %}
  m.def("multiply(Tensor left, Tensor right) -> Tensor?");
{% endif %}
}

STABLE_TORCH_LIBRARY_IMPL(OP_NAMESPACE, CUDA, m) {
  m.impl("forward", TORCH_BOX(&OP_NAMESPACE::forward));
  m.impl("bias_gradient", TORCH_BOX(&OP_NAMESPACE::bias_gradient));
  m.impl("backward", TORCH_BOX(&OP_NAMESPACE::backward));
{% if gemm == "tiled" %}
  m.impl("linear", TORCH_BOX(&OP_NAMESPACE::linear));
{% if backward == "dense" %}
  m.impl("input_product", TORCH_BOX(&OP_NAMESPACE::input_product));
  m.impl("weight_product", TORCH_BOX(&OP_NAMESPACE::weight_product));
{% endif %}
{% endif %}
{% if gemm == "split" %}
  m.impl("multiply", TORCH_BOX(&OP_NAMESPACE::multiply));
{% endif %}
}
