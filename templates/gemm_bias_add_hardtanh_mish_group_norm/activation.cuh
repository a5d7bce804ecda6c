// z = product + linear bias + added bias;  h = Hardtanh(z) = z clamped to [-1, 1];  a = Mish(h) = h tanh(softplus(h)).
// With e = exp(h) and q = 1 / (e (e + 2) + 2): tanh(softplus(h)) = 1 - 2 q, and
// Mish'(h) = 1 - 2 q + 4 h e (1 + e) q^2. On [-1, 1] nothing overflows, and 1 - 2 q lies between 0.3 and 0.87.

// The same sum in the same order in forward and backward: both decide Hardtanh's edges on the same bits.
__device__ inline float biased(float product, float linear, float added) {
  if constexpr (kAddBiases) return (product + linear) + added;
  return product;
}

__device__ inline float biased_at(const float* product, const Biases& biases, int64_t row, int64_t column,
                                  int64_t columns) {
  const float value = product[row * columns + column];
  if constexpr (!kAddBiases) return value;
  return biased(value, biases.linear[column], biases.added[row * biases.row_stride + column * biases.column_stride]);
}

// Not by fminf and fmaxf, which would turn NaN into an edge.
__device__ inline float hardtanh(float z) { return z < -1.0f ? -1.0f : (z > 1.0f ? 1.0f : z); }

// a, and da/dz: 0 at Hardtanh's edges and beyond.
struct Activation {
  float value;
  float slope;
};

// Forward and backward must get the same bits of the value: where a group's values are equal, the last bit of a
// difference is blown up by 1 / sqrt(eps). The intrinsics keep the compiler from fusing it with what follows.
__device__ inline Activation activation_with_slope(float z) {
  const float h = hardtanh(z);
  const float e = expf(h);
  const float q = 1.0f / __fmaf_rn(e, e + 2.0f, 2.0f);
  const float slope = (1.0f - 2.0f * q) + 4.0f * h * e * (1.0f + e) * (q * q);
  return {__fmaf_rn(-2.0f * h, q, h), z <= -1.0f || z >= 1.0f ? 0.0f : slope};
}

__device__ inline float activation(float z) { return activation_with_slope(z).value; }
