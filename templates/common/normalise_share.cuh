// Group norm of one row by teams, in registers.

// values = (values - mean) * rstd * weight + bias over the team's group; mean and rstd by two passes over registers.
// The values are taken relative to the group's first: the mean of equal ones is then exact, of which 1 / sqrt(eps)
// would blow up the last bit.
template <int kWidth>
__device__ inline void normalise_share(float (&values)[kValues], const float (&weight)[kValues],
                                       const float (&bias)[kValues], const Place& place, float eps, float& mean,
                                       float& rstd) {
  const float length = static_cast<float>(place.length);
  const float first = __shfl_sync(kAllLanes, values[0], 0, place.lanes);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    values[i] -= first;
    if (holds<kWidth>(place, i)) sum += values[i];
  }
  const float mean_beyond_first = team_sum(sum, place.lanes) / length;
  mean = first + mean_beyond_first;
  float m2 = 0.0f;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    values[i] -= mean_beyond_first;
    if (holds<kWidth>(place, i)) m2 += values[i] * values[i];
  }
  rstd = reciprocal_deviation(team_sum(m2, place.lanes), length, eps);
#pragma unroll
  for (int i = 0; i < kValues; ++i) values[i] = values[i] * (rstd * weight[i]) + bias[i];
}
