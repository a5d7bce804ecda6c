  const int64_t group = row / shape.group_channels;
  double sum = 0.0;
  double sum_xhat = 0.0;
  for (int64_t of = group * shape.group_channels; of < (group + 1) * shape.group_channels; ++of) {
    sum += weight[of % shape.channels] * row_sums[of].x;
    sum_xhat += weight[of % shape.channels] * row_sums[of].y;
  }
  const double length = shape.group_channels * shape.spatial;
  const float m1 = static_cast<float>(sum / length);
  const float m2 = static_cast<float>(sum_xhat / length);
  const float row_weight = weight[row % shape.channels];
  const auto [mean, rstd] = statistics[group];
