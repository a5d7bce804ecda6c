namespace OP_NAMESPACE {

void check_matrix(const Tensor& tensor, const Tensor& x, const char* name) {
  check_float_input(tensor, x, name);
  STD_TORCH_CHECK(tensor.dim() == 2, name, " must have 2 dimensions, got ", tensor.dim());
}

void check_vector(const Tensor& tensor, const Tensor& x, int64_t length, const char* name) {
  check_float_input(tensor, x, name);
  STD_TORCH_CHECK(tensor.dim() == 1 && tensor.size(0) == length, name, " must have ", length, " elements");
}

Shape shape_of(const Tensor& product, int64_t groups) {
  check_matrix(product, product, "the product");
  const int64_t columns = product.size(1);
  STD_TORCH_CHECK(groups > 0 && columns > 0 && columns % groups == 0, columns, " features cannot be divided into ",
                  groups, " groups");
  STD_TORCH_CHECK(columns <= 0x7fffffff, columns, " features are more than the kernels count");
  return {product.size(0), columns, groups};
}

// The biases of a (rows, columns) product; `added` has up to two dimensions and broadcasts to it.
Biases biases_of(const Tensor& x, int64_t rows, int64_t columns, const Tensor& linear, const Tensor& added) {
  check_vector(linear, x, columns, "the bias of the linear layer");
  check_float_input(added, x, "bias");
  const int64_t dimensions = added.dim();
  const int64_t width = dimensions >= 1 ? added.size(dimensions - 1) : 1;
  const int64_t height = dimensions >= 2 ? added.size(0) : 1;
  STD_TORCH_CHECK(dimensions <= 2 && (width == 1 || width == columns) && (height == 1 || height == rows),
                  "bias (..., ", height, ", ", width, ") does not broadcast to (", rows, ", ", columns, ")");
  return {input_floats(linear), input_floats(added), height == 1 ? 0 : width, width == 1 ? 0 : 1};
}

// y like the product, and statistics (2, batch, groups): mean and 1 / sqrt(variance + eps) of what is normalised.
std::tuple<Tensor, Tensor> forward(const Tensor& product, const Tensor& linear_bias, const Tensor& added_bias,
                                   const Tensor& weight, const Tensor& bias, int64_t groups, double eps) {
  const Shape shape = shape_of(product, groups);
  const Biases biases = biases_of(product, shape.rows, shape.columns, linear_bias, added_bias);
  check_vector(weight, product, shape.columns, "the weight of the group norm");
  check_vector(bias, product, shape.columns, "the bias of the group norm");
  Tensor y = torch::stable::empty_like(product);
  Tensor statistics = torch::stable::new_empty(product, {2, shape.rows, shape.groups});
  float* mean = output_floats(statistics);
  check_launch(launch_forward(input_floats(product), biases, input_floats(weight), input_floats(bias), shape,
                              static_cast<float>(eps), output_floats(y), mean, mean + shape.rows * shape.groups,
                              product.get_device_index(), current_stream(product)));
  return {y, statistics};
}

using Wanted = std::optional<Tensor>;

float* floats_or_null(Wanted& tensor) { return tensor ? output_floats(*tensor) : nullptr; }

// The wanted gradients: of the product, of the group norm's weight and bias, of the linear layer's bias, and of the
// added bias, that last one only where it is one row.
std::tuple<Wanted, Wanted, Wanted, Wanted, Wanted> backward(
    const Tensor& dy, const Tensor& product, const Tensor& linear_bias, const Tensor& added_bias,
    const Tensor& weight, const Tensor& statistics, int64_t groups, bool wants_product, bool wants_weight,
    bool wants_bias, bool wants_linear_bias, bool wants_added_bias) {
  const Shape shape = shape_of(product, groups);
  const Biases biases = biases_of(product, shape.rows, shape.columns, linear_bias, added_bias);
  check_matrix(dy, product, "the gradient of y");
  check_vector(weight, product, shape.columns, "the weight of the group norm");
  check_float_input(statistics, product, "statistics");
  STD_TORCH_CHECK(dy.size(0) == shape.rows && dy.size(1) == shape.columns,
                  "the gradient of y must have the shape of y");
  STD_TORCH_CHECK(statistics.numel() == 2 * shape.rows * shape.groups, "statistics must be (2, batch, groups)");
  STD_TORCH_CHECK(wants_product || !(wants_linear_bias || wants_added_bias),
                  "the gradient of a bias wants that of the product");
  STD_TORCH_CHECK(!wants_added_bias || (biases.row_stride == 0 && added_bias.numel() == shape.columns),
                  "only a bias of one row is summed here");
  Wanted dproduct, dweight, dbias, dlinear_bias, dadded_bias;
  if (wants_product) dproduct = torch::stable::empty_like(product);
  if (wants_weight) dweight = torch::stable::empty_like(weight);
  if (wants_bias) dbias = torch::stable::empty_like(weight);
  if (wants_linear_bias) dlinear_bias = torch::stable::empty_like(linear_bias);
  if (wants_added_bias) dadded_bias = torch::stable::empty_like(added_bias);
  const Gradients gradients = {floats_or_null(dproduct), floats_or_null(dweight), floats_or_null(dbias),
                               floats_or_null(dlinear_bias), floats_or_null(dadded_bias)};
  Tensor scratch = torch::stable::new_empty(product, {backward_scratch(shape)});
  const float* mean = input_floats(statistics);
  check_launch(launch_backward(input_floats(dy), input_floats(product), biases, input_floats(weight), mean,
                               mean + shape.rows * shape.groups, shape, gradients, output_floats(scratch),
                               product.get_device_index(), current_stream(product)));
  return {dproduct, dweight, dbias, dlinear_bias, dadded_bias};
}
{% if gemm == "tiled" %}

// z (batch, out) = x (batch, in) times weight (out, in) transposed, plus both biases.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& linear_bias, const Tensor& added_bias) {
  check_matrix(x, x, "x");
  check_matrix(weight, x, "the weight of the linear layer");
  STD_TORCH_CHECK(x.size(1) == weight.size(1), "x must have ", weight.size(1), " features, got ", x.size(1));
  const Product product = {input_floats(x), input_floats(weight), x.size(0), weight.size(0), x.size(1)};
  const Biases biases = biases_of(x, product.m, product.n, linear_bias, added_bias);
  Tensor z = torch::stable::new_empty(x, {product.m, product.n});
  check_launch(launch_linear(product, biases, output_floats(z), x.get_device_index(), current_stream(x)));
  return z;
}

// dx (batch, in) = dz (batch, out) times weight (out, in).
Tensor input_gradient(const Tensor& dz, const Tensor& weight) {
  check_matrix(dz, dz, "dz");
  check_matrix(weight, dz, "the weight of the linear layer");
  STD_TORCH_CHECK(dz.size(1) == weight.size(0), "dz must have ", weight.size(0), " columns, got ", dz.size(1));
  const Product product = {input_floats(dz), input_floats(weight), dz.size(0), weight.size(1), dz.size(1)};
  Tensor dx = torch::stable::new_empty(dz, {product.m, product.n});
  check_launch(launch_input_gradient(product, output_floats(dx), dz.get_device_index(), current_stream(dz)));
  return dx;
}

// dweight (out, in) = dz (batch, out) transposed times x (batch, in).
Tensor weight_gradient(const Tensor& dz, const Tensor& x) {
  check_matrix(dz, dz, "dz");
  check_matrix(x, dz, "x");
  STD_TORCH_CHECK(dz.size(0) == x.size(0), "dz must have ", x.size(0), " rows, got ", dz.size(0));
  const Product product = {input_floats(dz), input_floats(x), dz.size(1), x.size(1), dz.size(0)};
  Tensor dweight = torch::stable::new_empty(dz, {product.m, product.n});
  check_launch(launch_weight_gradient(product, output_floats(dweight), dz.get_device_index(), current_stream(dz)));
  return dweight;
}
{% endif %}
{% if gemm == "split" %}

{% include "common/product/split/binding.h" %}
{% endif %}

}  // namespace OP_NAMESPACE

STABLE_TORCH_LIBRARY(OP_NAMESPACE, m) {
  m.def(
      "forward(Tensor product, Tensor linear_bias, Tensor added_bias, Tensor weight, Tensor bias, int groups, "
      "float eps) -> (Tensor, Tensor)");
  m.def(
      "backward(Tensor dy, Tensor product, Tensor linear_bias, Tensor added_bias, Tensor weight, Tensor statistics, "
      "int groups, bool wants_product, bool wants_weight, bool wants_bias, bool wants_linear_bias, "
      "bool wants_added_bias) -> (Tensor?, Tensor?, Tensor?, Tensor?, Tensor?)");
{% if gemm == "tiled" %}
  m.def("linear(Tensor x, Tensor weight, Tensor linear_bias, Tensor added_bias) -> Tensor");
  m.def("input_gradient(Tensor dz, Tensor weight) -> Tensor");
  m.def("weight_gradient(Tensor dz, Tensor x) -> Tensor");
{% endif %}
{% if gemm == "split" %}
  m.def("multiply(Tensor left, Tensor right) -> Tensor?");
{% endif %}
}

STABLE_TORCH_LIBRARY_IMPL(OP_NAMESPACE, CUDA, m) {
  m.impl("forward", TORCH_BOX(&OP_NAMESPACE::forward));
  m.impl("backward", TORCH_BOX(&OP_NAMESPACE::backward));
{% if gemm == "tiled" %}
  m.impl("linear", TORCH_BOX(&OP_NAMESPACE::linear));
  m.impl("input_gradient", TORCH_BOX(&OP_NAMESPACE::input_gradient));
  m.impl("weight_gradient", TORCH_BOX(&OP_NAMESPACE::weight_gradient));
{% endif %}
{% if gemm == "split" %}
  m.impl("multiply", TORCH_BOX(&OP_NAMESPACE::multiply));
{% endif %}
}
