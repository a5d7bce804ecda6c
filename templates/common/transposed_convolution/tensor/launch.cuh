// Chooses and launches the convolution on tensor cores.

constexpr int64_t kFewestPixels = {{ tensor_from }};  // of all images, below which torch convolves

inline int device_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess ? value : 0;
}

// Pixels from a row of the gradient's halves to the next: eights of pixels lie within one row.
inline int64_t gradient_pitch(const DenseConvolution& convolution) { return ceil_div(convolution.fine_width(), 8) * 8; }

inline int64_t farthest_tap(const DenseConvolution& convolution, int64_t pitch) {
  return (convolution.kernel_y - 1) * pitch + convolution.kernel_x - 1;
}

bool suits_tensor_cores(const DenseConvolution& convolution, int device) {
  constexpr int64_t kMostSamples = 65535;       // by the grid of gradient_halves
  constexpr int64_t kMostPixels = 1 << 20;      // that inverse_pitch divides
  const int64_t pitch = gradient_pitch(convolution);
  if (convolution.samples < 1 || convolution.samples > kMostSamples) return false;
  if (convolution.in < 1 || convolution.in > kMostChannels || convolution.out > kMostChannels) return false;
  if (convolution.kernel_y * convolution.kernel_x > kMostTaps) return false;
  if (farthest_tap(convolution, pitch) > Ring<Pass::kForward>::kFarthest) return false;
  if (convolution.fine_width() < 2 || (convolution.height + convolution.kernel_y) * pitch > kMostPixels) return false;
  if (convolution.fine_plane() < kShortRow) return false;  // short_row_sums reads rows without a pitch
  if (convolution.samples * convolution.fine_plane() < kFewestPixels) return false;
  return device_attribute(cudaDevAttrComputeCapabilityMajor, device) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor, device) == 0;
}

inline int forward_steps(const DenseConvolution& convolution) {
  return static_cast<int>(ceil_div(convolution.fine_plane(), kSlot));
}

// Blocks that correlate: one a multiprocessor.
inline int64_t correlating_blocks(int64_t steps, int device) {
  const int64_t processors = device_attribute(cudaDevAttrMultiProcessorCount, device);
  return steps < processors ? steps : processors;
}

int64_t moment_parts(const DenseConvolution& convolution, int device) {
  const int64_t steps = convolution.samples * forward_steps(convolution);
  const int64_t of_block = steps / correlating_blocks(steps, device);
  return kMultiplyGroups * (ceil_div(forward_steps(convolution), of_block) + 1);
}

inline int64_t weight_bytes(const DenseConvolution& convolution) {
  constexpr int64_t kOfExponents = kMostChannels * sizeof(int);
  return int64_t{convolution.kernel_y} * convolution.kernel_x * kTapBytes + kOfExponents;
}

int64_t convolve_scratch(const DenseConvolution& convolution) { return weight_bytes(convolution); }

// What the convolution and the gradient of its input have in common.
inline Correlation correlation_of(const DenseConvolution& convolution, int64_t pitch, const uint8_t* scratch) {
  Correlation c = {};
  c.samples = convolution.samples;
  c.kernel_y = convolution.kernel_y;
  c.kernel_x = convolution.kernel_x;
  c.pitch = static_cast<int>(pitch);
  c.inverse_pitch = static_cast<unsigned>(ceil_div(int64_t{1} << 32, pitch));
  c.farthest = static_cast<int>(farthest_tap(convolution, pitch));
  c.lead = static_cast<int>(ceil_div(c.farthest, kSlot));
  c.weights = scratch;
  c.weight_exponents = reinterpret_cast<const int*>(scratch + weight_bytes(convolution)) - kMostChannels;
  c.height = convolution.height;
  c.width = convolution.width;
  return c;
}

template <Pass kPass>
LaunchStatus launch_correlate(const Correlation& c, int device, cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(correlate<kPass>),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kCorrelateShared<kPass>);
  if (error != cudaSuccess) return {"correlate", cudaGetErrorString(error)};
  const unsigned blocks = static_cast<unsigned>(correlating_blocks(c.samples * c.steps, device));
  correlate<kPass><<<blocks, kCorrelateThreads, kCorrelateShared<kPass>, stream>>>(c);
  return launched("correlate");
}

LaunchStatus launch_prepare_weights(const Taps& taps, uint8_t* scratch, cudaStream_t stream) {
  int* const exponents = reinterpret_cast<int*>(scratch + int64_t{taps.count} * kTapBytes);
  prepare_weights<<<kMostChannels, 128, 0, stream>>>(taps, scratch, exponents);
  return launched("prepare_weights");
}

LaunchStatus launch_convolve(const float* x, const float* weight, const float* bias,
                             const DenseConvolution& convolution, float* z, float* moments, unsigned* magnitudes,
                             uint8_t* scratch, int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const int taps = convolution.kernel_y * convolution.kernel_x;
  LaunchStatus status = launch_prepare_weights({weight, taps, int64_t{convolution.out} * taps, taps, convolution.in,
                                                convolution.out, false},
                                               scratch, stream);
  if (status.kernel != nullptr) return status;
  Correlation c = correlation_of(convolution, convolution.fine_width(), scratch);
  c.sources = convolution.in;
  c.targets = convolution.out;
  c.steps = forward_steps(convolution);
  c.x = x;
  c.magnitudes = magnitudes;
  c.bias = bias;
  c.target = z;
  c.target_plane = convolution.fine_plane();
  c.target_pitch = convolution.pitch();
  c.moments = reinterpret_cast<Moments*>(moments);
  c.parts = static_cast<int>(moment_parts(convolution, device));
  const int64_t of_channels = c.samples * c.targets * c.parts * static_cast<int64_t>(sizeof(Moments));
  if (cudaMemsetAsync(moments, 0, of_channels, stream) != cudaSuccess ||
      cudaMemsetAsync(magnitudes, 0, c.samples * sizeof(unsigned), stream) != cudaSuccess) {
    return launched("clearing moments");
  }
  status = launch_correlate<Pass::kForward>(c, device, stream);
  if (status.kernel != nullptr) return status;
  return launch_correlate<Pass::kRescue>(c, device, stream);
}

// Where the parts of the backward's scratch memory lie.
struct BackwardLayout {
  Shape shape;
  int64_t pitch;
  int64_t steps;  // of an image of x
  int64_t plane;  // of the gradient's halves: what any tap reaches from whole slots
  int64_t tiles;
  int64_t taps;
  int64_t blocks;

  BackwardLayout(const DenseBackward& backward, int device) {
    const DenseConvolution& convolution = backward.convolution;
    shape = {convolution.samples, convolution.out, backward.groups, convolution.fine_plane(), convolution.pitch()};
    pitch = gradient_pitch(convolution);
    steps = ceil_div(convolution.height * pitch, kSlot);
    plane = steps * kSlot + farthest_tap(convolution, pitch);
    tiles = ceil_div(plane, kHalvesTile);
    taps = int64_t{convolution.kernel_y} * convolution.kernel_x;
    blocks = correlating_blocks(convolution.samples * steps, device);
  }

  int64_t rows() const { return shape.samples * shape.channels; }
  int64_t means() const { return aligned<RowSums>(rows() * (1 + row_parts(shape.spatial).count)); }
  int64_t exponents() const { return means() + aligned<GroupMeans>(shape.samples * shape.groups); }
  int64_t shifts() const { return exponents() + aligned<int>(shape.samples); }
  int64_t weights() const { return shifts() + aligned<float>(rows() * tiles); }
  int64_t partial() const { return weights() + aligned<uint8_t>(taps * kTapBytes) + aligned<int>(kMostChannels); }
  int64_t halves() const { return partial() + aligned<float>(blocks * taps * kTapSums); }
  int64_t bytes() const { return halves() + shape.samples * kEights * plane * kEightBytes; }

  // Bytes of so many, up to where anything may begin.
  template <typename T>
  static int64_t aligned(int64_t count) {
    return ceil_div(count * static_cast<int64_t>(sizeof(T)), 16) * 16;
  }
};

int64_t gradients_scratch(const DenseBackward& backward, int device) {
  return BackwardLayout(backward, device).bytes();
}

inline LaunchStatus launch_halves(const DenseBackward& backward, const BackwardLayout& layout, uint8_t* scratch,
                                  float* dbias, cudaStream_t stream) {
  GradientHalves g = {};
  g.dy = backward.dy;
  g.z = backward.z;
  g.pitch_of_z = layout.shape.pitch;
  g.weight = backward.norm_weight;
  g.mean = backward.mean;
  g.rstd = backward.rstd;
  g.means = reinterpret_cast<const GroupMeans*>(scratch + layout.means());
  g.channels = layout.shape.channels;
  g.groups = layout.shape.groups;
  g.width = static_cast<int>(backward.convolution.fine_width());
  g.height = static_cast<int>(layout.shape.spatial / g.width);
  g.pitch = static_cast<int>(layout.pitch);
  g.inverse_pitch = static_cast<unsigned>(ceil_div(int64_t{1} << 32, layout.pitch));
  g.plane = static_cast<int>(layout.plane);
  g.exponents = reinterpret_cast<int*>(scratch + layout.exponents());
  g.halves = scratch + layout.halves();
  g.sums = reinterpret_cast<float*>(scratch + layout.shifts());
  const dim3 grid(static_cast<unsigned>(layout.tiles), kEights, static_cast<unsigned>(layout.shape.samples));
  gradient_halves<<<grid, kHalvesThreads, 0, stream>>>(g, backward.bias);
  const LaunchStatus status = launched("gradient_halves");
  if (status.kernel != nullptr || dbias == nullptr) return status;
  return launch_shift_gradient(nullptr, g.sums, layout.shape, layout.tiles, dbias, stream);
}

inline LaunchStatus launch_weight_sums(const DenseBackward& backward, const BackwardLayout& layout,
                                       const Correlation& gradient, float* partial, float* dweight,
                                       cudaStream_t stream) {
  const DenseConvolution& convolution = backward.convolution;
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(sum_weight_gradient),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kSumShared);
  if (error != cudaSuccess) return {"sum_weight_gradient", cudaGetErrorString(error)};
  const WeightSums sums = {gradient, backward.x, convolution.in, backward.magnitudes, partial};
  const unsigned blocks = static_cast<unsigned>(layout.blocks);
  sum_weight_gradient<<<blocks, kSumThreads, kSumShared, stream>>>(sums);
  const LaunchStatus status = launched("sum_weight_gradient");
  if (status.kernel != nullptr) return status;
  const int taps = static_cast<int>(layout.taps);
  add_weight_sums<<<static_cast<unsigned>(taps * kTapSums / 256), 256, 0, stream>>>(
      partial, static_cast<int>(blocks), taps, convolution.in, convolution.out, dweight);
  return launched("add_weight_sums");
}

LaunchStatus launch_gradients(const DenseBackward& backward, const DenseGradients& gradients, uint8_t* scratch,
                              int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const DenseConvolution& convolution = backward.convolution;
  const BackwardLayout layout(backward, device);
  RowSums* const row_sums = reinterpret_cast<RowSums*>(scratch);
  LaunchStatus status = launch_means(backward.dy, backward.z, backward.bias, backward.norm_weight, backward.mean,
                                     backward.rstd, layout.shape, row_sums, row_sums + layout.rows(),
                                     reinterpret_cast<GroupMeans*>(scratch + layout.means()), stream);
  if (status.kernel != nullptr) return status;
  if (gradients.x != nullptr || gradients.weight != nullptr || gradients.bias != nullptr) {
    status = launch_halves(backward, layout, scratch, gradients.bias, stream);
    if (status.kernel != nullptr) return status;
  }
  Correlation c = correlation_of(convolution, layout.pitch, scratch + layout.weights());
  c.sources = convolution.out;
  c.targets = convolution.in;
  c.steps = static_cast<int>(layout.steps);
  c.planes = scratch + layout.halves();
  c.plane = static_cast<int>(layout.plane);
  c.exponents = reinterpret_cast<const int*>(scratch + layout.exponents());
  c.target = gradients.x;
  c.target_plane = int64_t{convolution.height} * convolution.width;
  c.target_pitch = c.target_plane;
  if (gradients.x != nullptr) {
    const int taps = static_cast<int>(layout.taps);
    status = launch_prepare_weights({backward.weight, int64_t{convolution.out} * taps, taps, taps, convolution.out,
                                     convolution.in, true},
                                    scratch + layout.weights(), stream);
    if (status.kernel != nullptr) return status;
    status = launch_correlate<Pass::kGradient>(c, device, stream);
    if (status.kernel != nullptr) return status;
  }
  if (gradients.weight != nullptr) {
    status = launch_weight_sums(backward, layout, c, reinterpret_cast<float*>(scratch + layout.partial()),
                                gradients.weight, stream);
    if (status.kernel != nullptr) return status;
  }
  return launch_affine_gradients(row_sums, layout.shape, gradients.norm_weight, gradients.norm_bias, stream);
}
