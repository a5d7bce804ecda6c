// dweight[c] = sum over samples of dy_xhat, dbias[c] = sum over samples of dy, from the sums of each row.
// Grid (channels / 32), block (32 channels, 32 lanes of samples); a fixed order, in double since there may be many.

constexpr int kAffineLanes = 32;

__global__ void affine_gradients(const RowSums* row_sums, int64_t samples, int64_t channels, Weight* dweight,
                                 Weight* dbias) {
  __shared__ double lane_dy[kAffineLanes][kWarpSize];
  __shared__ double lane_dy_xhat[kAffineLanes][kWarpSize];
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kWarpSize + threadIdx.x;
  double sum_dy = 0.0;
  double sum_dy_xhat = 0.0;
  if (channel < channels) {
    for (int64_t sample = threadIdx.y; sample < samples; sample += kAffineLanes) {
      const RowSums row = row_sums[sample * channels + channel];
      sum_dy += row.dy;
      sum_dy_xhat += row.dy_xhat;
    }
  }
  lane_dy[threadIdx.y][threadIdx.x] = sum_dy;
  lane_dy_xhat[threadIdx.y][threadIdx.x] = sum_dy_xhat;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= channels) return;
  for (int lane = 1; lane < kAffineLanes; ++lane) {
    sum_dy += lane_dy[lane][threadIdx.x];
    sum_dy_xhat += lane_dy_xhat[lane][threadIdx.x];
  }
  if (dweight != nullptr) put(dweight + channel, static_cast<float>(sum_dy_xhat));
  if (dbias != nullptr) put(dbias + channel, static_cast<float>(sum_dy));
}

inline LaunchStatus launch_affine_gradients(const RowSums* row_sums, const Shape& shape, Weight* dweight,
                                            Weight* dbias, cudaStream_t stream) {
  if (dweight == nullptr && dbias == nullptr) return {nullptr, nullptr};
  const unsigned blocks = grid_for(ceil_div(shape.channels, kWarpSize));
  affine_gradients<<<blocks, dim3(kWarpSize, kAffineLanes), 0, stream>>>(row_sums, shape.samples, shape.channels,
                                                                         dweight, dbias);
  return launched("affine_gradients");
}
