#include <cstdint>

namespace OP_NAMESPACE {

{% include "common/launch_status.h" %}

{% include "common/grouped_rows.h" %}

// What is normalised, and how: z = product (+ linear_bias), and weight and bias (columns) of the group norm.
struct Normalisation {
  const float* product;      // (rows, columns)
  const float* linear_bias;  // (columns)
  const float* weight;
  const float* bias;
  const float* moments;      // what the product's epilogue left behind; else null
  Shape shape;
  float eps;
};

// What the minima (rows) and the bias broadcast to: y (outer, rows, inner), contiguous, is minima (rows) plus the bias,
// (outer, rows, inner) or (outer, 1, inner). An entry is a pair of outer and inner.
struct Broadcast {
  const float* bias;
  int64_t outer;
  int64_t rows;
  int64_t inner;
  int64_t bias_row;  // floats from one row to the next of the bias: inner or 0
};

// The gradient of y: its address and its strides, in floats, along (outer, rows, inner).
struct Cotangent {
  const float* data;
  int64_t outer;
  int64_t rows;
  int64_t inner;
  int64_t outer_stride;
  int64_t row_stride;
  int64_t inner_stride;
};

// What the gradient of z is computed from: z = x weight^T + linear_bias, and the column of each row's minimum.
struct Winners {
  const int* columns;        // (rows)
  const float* x;            // (rows, features)
  const float* weight;       // (columns, features)
  const float* linear_bias;  // (columns)
  const float* norm_weight;  // (columns)
  int64_t features;
};

// Where gradients go; null where one is not wanted.
struct Gradients {
  float* linear_bias;  // (columns)
  float* norm_weight;  // (columns)
  float* norm_bias;    // (columns)
};

// Memory for the backward to work in.
struct Workspace {
  float* minima;        // (rows): the gradient of each minimum
  double* z;            // (rows, columns / groups): z of the group of each minimum
  float* dz;            // (rows, columns / groups): its gradient
  float* norm_weight;   // (rows): what each row adds to the gradient of its winner's weight
  int* order;           // (rows): the rows, those of one group after those of another, each in their order
  int* begins;          // (groups + 1): where in `order` a group's rows begin
  int* listed;          // (groups + 1): the groups that have rows; the last element is how many these are
  int* cursors;         // (groups)
};

// Writes y and, where it is not null, `winners` (rows): the column of each row's minimum. `minima` (rows) is memory to
// work in.
LaunchStatus launch_forward(const Normalisation& normalisation, const Broadcast& broadcast, float* y, int* winners,
                            float* minima, int device, void* stream);

// Floats of memory that launch_cotangent_sums works in.
int64_t cotangent_scratch(const Cotangent& cotangent);

// minima (rows) = sum over entries, bias (outer * inner) = sum over rows; null where not wanted.
LaunchStatus launch_cotangent_sums(const Cotangent& cotangent, float* minima, float* bias, float* scratch, int device,
                                   void* stream);

// From workspace.minima on: the rest of the workspace, and the gradients of what belongs to columns.
LaunchStatus launch_group_gradients(const Winners& winners, const Shape& shape, double eps, const Workspace& workspace,
                                    const Gradients& gradients, int device, void* stream);
{% if backward == "sparse" %}

// dx (rows, features).
LaunchStatus launch_input_gradient(const Winners& winners, const Workspace& workspace, const Shape& shape, float* dx,
                                   int device, void* stream);

// dweight (columns, features).
LaunchStatus launch_weight_gradient(const Winners& winners, const Workspace& workspace, const Shape& shape,
                                    float* dweight, int device, void* stream);
{% else %}

// dz (rows, columns): the gradient of z, zero outside the groups of the minima.
LaunchStatus launch_spread(const Winners& winners, const Workspace& workspace, const Shape& shape, float* dz,
                           int device, void* stream);
{% endif %}
{% if gemm == "tiled" %}

{% include "common/product/product.h" %}

{% if statistics == "epilogue" %}
// Floats of `moments` below, one row.
int64_t moments_of_row(const Shape& shape);

{% endif %}
// x (m, k), weight (n, k): z (m, n) = x weight^T + linear_bias. `moments`: see Normalisation.
LaunchStatus launch_linear(const Product& product, const float* linear_bias, const Shape& shape, float* z,
                           float* moments, int device, void* stream);
{% if backward == "dense" %}

// dz (m, k), weight (k, n): dx (m, n) = dz weight.
LaunchStatus launch_input_product(const Product& product, float* dx, int device, void* stream);

// dz (k, m), x (k, n): dweight (m, n) = dz^T x.
LaunchStatus launch_weight_product(const Product& product, float* dweight, int device, void* stream);
{% endif %}
{% endif %}
{% if gemm == "split" %}

{% include "common/product/split/launchers.h" %}
{% endif %}

}  // namespace OP_NAMESPACE
