// GELU itself, not its approximation by a hyperbolic tangent: a = z Phi(z) and da/dz = Phi(z) + z phi(z), with the
// normal distribution Phi(z) = (1 + erf(z / sqrt(2))) / 2 and its density phi(z) = exp(-z^2 / 2) / sqrt(2 pi).

// An element as it is normalised, and its derivative by the element in memory.
struct Activation {
  float value;
  float slope;
};

constexpr float kSqrtHalf = 0.70710678f;
constexpr float kDensityAtZero = 0.39894228f;  // 1 / sqrt(2 pi)
constexpr float kHalfLog2E = 0.72134752f;      // log2(e) / 2

__device__ inline float normal_distribution(float z) { return __fmaf_rn(0.5f, erff(z * kSqrtHalf), 0.5f); }

// The intrinsic keeps the compiler from fusing the product with what follows, so that every kernel gets the same bits:
// where the values of a group are equal, the last bit of a difference is blown up by 1 / sqrt(eps).
__device__ inline float gelu(float z) { return __fmul_rn(z, normal_distribution(z)); }

__device__ inline Activation gelu_with_slope(float z) {
  const float distribution = normal_distribution(z);
  const float density = kDensityAtZero * exp2f(-kHalfLog2E * z * z);
  return {__fmul_rn(z, distribution), distribution + z * density};
}
