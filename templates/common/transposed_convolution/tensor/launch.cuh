// Chooses and launches the convolution on tensor cores.

constexpr int64_t kFewestPixels = {{ tensor_from }};  // of all images, below which torch convolves

inline int device_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess ? value : 0;
}

// Pixels from a row of x to the next, on its line: behind a row lie the zeros that the taps of a phase reach.
inline int64_t line_pitch(const DenseConvolution& convolution) {
  return int64_t{convolution.width} + convolution.phase_taps_x() - 1;
}

// The same of the gradient's halves: eights of pixels lie within one row.
inline int64_t gradient_pitch(const DenseConvolution& convolution) { return ceil_div(line_pitch(convolution), 8) * 8; }

// Of a phase.
inline int64_t farthest_tap(const DenseConvolution& convolution, int64_t pitch) {
  return (convolution.phase_taps_y() - 1) * pitch + convolution.phase_taps_x() - 1;
}

// Whether there are kernels for the strides, and taps of all phases fit where these keep them.
inline bool suits_strides(const DenseConvolution& convolution) {
  if (convolution.kernel_y < convolution.stride_y || convolution.kernel_x < convolution.stride_x) return false;
  if (convolution.phase_taps_y() * convolution.kernel_x > kMostTaps) return false;
  if (convolution.kernel_y * convolution.kernel_x > kMostGatheredTaps) return false;
  return !convolution.is_strided() || (convolution.stride_y <= 2 && convolution.stride_x == kStride);
}

bool suits_tensor_cores(const DenseConvolution& convolution, int device) {
  constexpr int64_t kMostSamples = 65535;       // by the grid of gradient_halves
  constexpr int64_t kMostPixels = 1 << 20;      // that inverse_pitch divides,
  constexpr int64_t kMostPitch = 4000;          // by so many at most
  const int64_t pitch = gradient_pitch(convolution);
  if (convolution.samples < 1 || convolution.samples > kMostSamples) return false;
  if (convolution.in < 1 || convolution.in > kMostChannels || convolution.out > kMostChannels) return false;
  if (!suits_strides(convolution)) return false;
  if (farthest_tap(convolution, pitch) > Ring<Pass::kForward>::kFarthest) return false;
  if (line_pitch(convolution) < 2 || pitch > kMostPitch) return false;
  if ((convolution.height + convolution.phase_taps_y()) * pitch > kMostPixels) return false;
  if (convolution.fine_plane() < kShortRow) return false;  // short_row_sums reads rows without a pitch
  if (convolution.samples * convolution.fine_plane() < kFewestPixels) return false;
  return device_attribute(cudaDevAttrComputeCapabilityMajor, device) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor, device) == 0;
}

inline int forward_steps(const DenseConvolution& convolution) {
  const int64_t rows = int64_t{convolution.height} + convolution.phase_taps_y() - 1;
  return static_cast<int>(ceil_div(rows * line_pitch(convolution), kSlot));
}

// Blocks that correlate, in each of `rows` of a grid: one a multiprocessor.
inline int64_t correlating_blocks(int64_t steps, int device, int rows = 1) {
  const int64_t processors = device_attribute(cudaDevAttrMultiProcessorCount, device);
  const int64_t of_row = processors > rows ? processors / rows : 1;
  return steps < of_row ? steps : of_row;
}

int64_t moment_parts(const DenseConvolution& convolution, int device) {
  const int64_t steps = convolution.samples * forward_steps(convolution);
  const int64_t of_block = steps / correlating_blocks(steps, device, convolution.stride_y);
  return convolution.stride_y * kMultiplyGroups * (ceil_div(forward_steps(convolution), of_block) + 1);
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

inline Phases phases_of(const Correlation& c, const DenseConvolution& convolution) {
  return {c, convolution.stride_y, static_cast<int>(convolution.fine_height()),
          static_cast<int>(convolution.fine_width())};
}

template <Pass kPass>
LaunchStatus launch_correlate_phases(const Phases& phases, int device, cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(correlate_phases<kPass>),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kCorrelateShared<kPass>);
  if (error != cudaSuccess) return {"correlate_phases", cudaGetErrorString(error)};
  const int64_t steps = phases.line.samples * phases.line.steps;
  const dim3 grid(static_cast<unsigned>(correlating_blocks(steps, device, phases.stride_y)),
                  static_cast<unsigned>(phases.stride_y));
  correlate_phases<kPass><<<grid, kCorrelateThreads, kCorrelateShared<kPass>, stream>>>(phases);
  return launched("correlate_phases");
}

LaunchStatus launch_gather_phases(const Phases& phases, int device, cudaStream_t stream) {
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(gather_phases),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kGatherShared);
  if (error != cudaSuccess) return {"gather_phases", cudaGetErrorString(error)};
  const unsigned blocks = static_cast<unsigned>(correlating_blocks(phases.line.samples * phases.line.steps, device));
  gather_phases<<<blocks, kGatherThreads, kGatherShared, stream>>>(phases);
  return launched("gather_phases");
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
  Correlation c = correlation_of(convolution, line_pitch(convolution), scratch);
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
  if (convolution.is_strided()) {
    const Phases phases = phases_of(c, convolution);
    status = launch_correlate_phases<Pass::kForward>(phases, device, stream);
    if (status.kernel != nullptr) return status;
    return launch_correlate_phases<Pass::kRescue>(phases, device, stream);
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
  int64_t plane;  // of a phase of the gradient's halves: what any tap reaches from whole slots
  int64_t tiles;
  int64_t taps;
  int64_t phases;
  int64_t blocks;  // that sum the weight's gradient, of a phase

  BackwardLayout(const DenseBackward& backward, int device) {
    const DenseConvolution& convolution = backward.convolution;
    shape = {convolution.samples, convolution.out, backward.groups, convolution.fine_plane(), convolution.pitch()};
    pitch = gradient_pitch(convolution);
    steps = ceil_div(convolution.height * pitch, kSlot);
    plane = steps * kSlot + farthest_tap(convolution, pitch);
    tiles = convolution.stride_y * ceil_div(plane * convolution.stride_x, kHalvesTile);
    taps = int64_t{convolution.kernel_y} * convolution.kernel_x;
    phases = convolution.phases();
    blocks = correlating_blocks(convolution.samples * steps, device, convolution.phases());
  }

  int64_t rows() const { return shape.samples * shape.channels; }
  int64_t means() const { return aligned<RowSums>(rows() * (1 + row_parts(shape.spatial).count)); }
  int64_t exponents() const { return means() + aligned<GroupMeans>(shape.samples * shape.groups); }
  int64_t shifts() const { return exponents() + aligned<int>(shape.samples); }
  int64_t weights() const { return shifts() + aligned<float>(rows() * tiles); }
  int64_t partial() const { return weights() + aligned<uint8_t>(taps * kTapBytes) + aligned<int>(kMostChannels); }
  int64_t halves() const { return partial() + aligned<float>(blocks * taps * kTapSums); }
  int64_t phase_bytes() const { return shape.samples * kEights * plane * kEightBytes; }
  int64_t bytes() const { return halves() + phases * phase_bytes(); }

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
  g.stride_y = backward.convolution.stride_y;
  const dim3 grid(static_cast<unsigned>(layout.tiles), kEights, static_cast<unsigned>(layout.shape.samples));
  if (backward.convolution.is_strided()) gradient_halves<true><<<grid, kHalvesThreads, 0, stream>>>(g, backward.bias);
  else gradient_halves<false><<<grid, kHalvesThreads, 0, stream>>>(g, backward.bias);
  const LaunchStatus status = launched("gradient_halves");
  if (status.kernel != nullptr || dbias == nullptr) return status;
  return launch_shift_gradient(nullptr, g.sums, layout.shape, layout.tiles, dbias, stream);
}

// The gradient's correlation, for the sums of phase (py, px): with the line and the taps of this phase alone.
inline WeightSums sums_of_phase(const DenseBackward& backward, const BackwardLayout& layout,
                                const Correlation& gradient, float* partial, int py, int px) {
  DenseConvolution phase = backward.convolution;
  phase.kernel_y = (phase.kernel_y - py + phase.stride_y - 1) / phase.stride_y;
  phase.kernel_x = (phase.kernel_x - px + phase.stride_x - 1) / phase.stride_x;
  phase.stride_y = phase.stride_x = 1;
  const DenseConvolution& all = backward.convolution;
  Correlation c = gradient;
  c.kernel_y = phase.kernel_y;
  c.kernel_x = phase.kernel_x;
  c.farthest = static_cast<int>(farthest_tap(phase, layout.pitch));
  c.lead = static_cast<int>(ceil_div(c.farthest, kSlot));
  c.planes += (py * all.stride_x + px) * layout.phase_bytes();
  return {c, backward.x, all.in, backward.magnitudes, partial, static_cast<int>(layout.taps), py * all.kernel_x + px,
          all.stride_y * all.kernel_x};
}

template <bool kStrided>
LaunchStatus launch_sums_of_phases(const DenseBackward& backward, const BackwardLayout& layout,
                                   const Correlation& gradient, float* partial, cudaStream_t stream) {
  const DenseConvolution& convolution = backward.convolution;
  SumsOfPhases<kStrided> sums = {};
  for (int phase = 0; phase < convolution.phases(); ++phase) {
    sums.of_phase[phase] = sums_of_phase(backward, layout, gradient, partial, phase / convolution.stride_x,
                                         phase % convolution.stride_x);
  }
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(sum_weight_gradient<kStrided>),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kSumShared);
  if (error != cudaSuccess) return {"sum_weight_gradient", cudaGetErrorString(error)};
  const dim3 grid(static_cast<unsigned>(layout.blocks), static_cast<unsigned>(layout.phases));
  sum_weight_gradient<kStrided><<<grid, kSumThreads, kSumShared, stream>>>(sums);
  return launched("sum_weight_gradient");
}

inline LaunchStatus launch_weight_sums(const DenseBackward& backward, const BackwardLayout& layout,
                                       const Correlation& gradient, float* partial, float* dweight,
                                       cudaStream_t stream) {
  const DenseConvolution& convolution = backward.convolution;
  const LaunchStatus status =
      convolution.is_strided() ? launch_sums_of_phases<true>(backward, layout, gradient, partial, stream)
                               : launch_sums_of_phases<false>(backward, layout, gradient, partial, stream);
  if (status.kernel != nullptr) return status;
  const int taps = static_cast<int>(layout.taps);
  add_weight_sums<<<static_cast<unsigned>(taps * kTapSums / 256), 256, 0, stream>>>(
      partial, static_cast<int>(layout.blocks), taps, convolution.in, convolution.out, dweight);
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
                                     convolution.in, !convolution.is_strided()},
                                    scratch + layout.weights(), stream);
    if (status.kernel != nullptr) return status;
    status = convolution.is_strided() ? launch_gather_phases(phases_of(c, convolution), device, stream)
                                      : launch_correlate<Pass::kGradient>(c, device, stream);
    if (status.kernel != nullptr) return status;
  }
  if (gradients.weight != nullptr) {
    status = launch_weight_sums(backward, layout, c, reinterpret_cast<float*>(scratch + layout.partial()),
                                gradients.weight, stream);
    if (status.kernel != nullptr) return status;
  }
  return launch_affine_gradients(row_sums, layout.shape, gradients.norm_weight, gradients.norm_bias, stream);
}
