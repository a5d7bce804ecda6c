// A number a channel was added to x: its gradient is the sum of dx over samples and positions.

// An element of dx, which it also adds to a sum.
struct SummedInputGradient {
  InputGradient gradient;
  float* sum;
  __device__ float operator()(float dy, float x) const {
    const float dx = gradient(dy, x);
    *sum += dx;
    return dx;
  }
};

// Writes dx for a stretch of a row, by the whole block, and its sum to sums[row].
template <int kWidth>
__device__ inline void differentiate(const Element* dy, const Element* x, Element* dx, int64_t length,
                                     const InputGradient& gradient, double* scratch, float* sums, int64_t row) {
  float share = 0.0f;
  transform<kWidth>(dy, x, dx, length, SummedInputGradient{gradient, &share});
  const double sum = block_reduce(static_cast<double>(share), 0.0, scratch, AddDoubles());
  if (threadIdx.x == 0) sums[row] = static_cast<float>(sum);
}

// Grid (channels): dshift[c] is the sum of sums (samples, channels, parts) over samples and parts; a fixed order, in
// double since there may be many.
__global__ void __launch_bounds__(kThreads)
    shift_gradient(const float* sums, int64_t samples, int64_t channels, int64_t parts, float* dshift) {
  __shared__ double scratch[kMaxWarps];
  for (int64_t channel = blockIdx.x; channel < channels; channel += gridDim.x) {
    double share = 0.0;
    for (int64_t i = threadIdx.x; i < samples * parts; i += blockDim.x) {
      const int64_t sample = i / parts;
      share += sums[(sample * channels + channel) * parts + (i - sample * parts)];
    }
    const double sum = block_reduce(share, 0.0, scratch, AddDoubles());
    if (threadIdx.x == 0) dshift[channel] = static_cast<float>(sum);
  }
}

// `dx_sums`: of each of a row's `parts`; short rows have none, there dx itself is summed.
inline LaunchStatus launch_shift_gradient(const float* dx, const float* dx_sums, const Shape& shape, int64_t parts,
                                          float* dshift, cudaStream_t stream) {
  const bool is_short = shape.spatial < kShortRow;
  shift_gradient<<<grid_for(shape.channels), kThreads, 0, stream>>>(is_short ? dx : dx_sums, shape.samples,
                                                                    shape.channels, is_short ? shape.spatial : parts,
                                                                    dshift);
  return launched("shift_gradient");
}
