// One thread a channel: dweight and dbias (channels), from the sums of its rows.
__global__ void affine_gradients(const double2* __restrict__ row_sums, Shape shape, float* __restrict__ dweight,
                                 float* __restrict__ dbias) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (channel >= shape.channels) return;
  double sum = 0.0;
  double sum_xhat = 0.0;
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    sum += row_sums[sample * shape.channels + channel].x;
    sum_xhat += row_sums[sample * shape.channels + channel].y;
  }
  dbias[channel] = static_cast<float>(sum);
  dweight[channel] = static_cast<float>(sum_xhat);
}
