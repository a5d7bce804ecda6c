#include <cstdint>

namespace OP_NAMESPACE {

{% include "common/launch_status.h" %}

{% include "common/grouped_rows.h" %}

// What is added to the product: the linear layer's bias (columns), and one that broadcasts by strides of 0.
struct Biases {
  const float* linear;
  const float* added;
  int64_t row_stride;
  int64_t column_stride;
};

// Where gradients go; null where one is not wanted.
struct Gradients {
  float* product;      // (rows, columns)
  float* weight;       // (columns), of the group norm
  float* bias;         // (columns), of the group norm
  float* linear_bias;  // (columns)
  float* added_bias;   // (columns); only for a bias of one row
};

// Floats of scratch memory that launch_backward wants.
int64_t backward_scratch(const Shape& shape);

// Writes y like the product, and mean and rstd of what is normalised, each (rows, groups).
LaunchStatus launch_forward(const float* product, const Biases& biases, const float* weight, const float* bias,
                            const Shape& shape, float eps, float* y, float* mean, float* rstd, int device,
                            void* stream);

// Writes (never accumulates) the wanted gradients; any gradient of a bias wants that of the product too.
LaunchStatus launch_backward(const float* dy, const float* product, const Biases& biases, const float* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream);
{% if gemm == "tiled" %}

{% include "common/product/product.h" %}

// x (m, k), weight (n, k): z (m, n) = x weight^T + biases.
LaunchStatus launch_linear(const Product& product, const Biases& biases, float* z, int device, void* stream);

// dz (m, k), weight (k, n): dx (m, n) = dz weight.
LaunchStatus launch_input_gradient(const Product& product, float* dx, int device, void* stream);

// dz (k, m), x (k, n): dweight (m, n) = dz^T x.
LaunchStatus launch_weight_gradient(const Product& product, float* dweight, int device, void* stream);
{% endif %}
{% if gemm == "split" %}

{% include "common/product/split/launchers.h" %}
{% endif %}

}  // namespace OP_NAMESPACE
