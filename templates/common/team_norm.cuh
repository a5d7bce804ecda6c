__device__ inline float reciprocal_deviation(float m2, float length, float eps) {
  return 1.0f / sqrtf(m2 / length + eps);
}
