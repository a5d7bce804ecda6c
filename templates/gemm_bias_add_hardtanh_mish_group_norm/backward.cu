// Backward behind the product. With xhat = (a - mean) * rstd and g = dy * weight, over each group
//     da = rstd * (g - mean(g) - xhat * mean(g * xhat)),    dz = da * da/dz,
// and over the rows dweight = sum(dy * xhat), dbias = sum(dy), and for both biases before Hardtanh sum(dz). What
// forward normalised is computed again from the product. Sums over rows: one partial sum a chunk, then all chunks in
// order.

// The partial sums (chunks, columns) of each kind of parameter; null where it is not wanted.
struct PartialSums {
  float* weight;
  float* bias;
  float* shift;  // of what is added to the product
};

__device__ inline void store_partial(float* sums, int64_t offset, float sum) {
  if (sums != nullptr) sums[offset] = sum;
}

template <int kWidth>
__device__ inline void store_partial_share(float* sums, int64_t offset, const Place& place,
                                           const float (&share)[kValues]) {
  if (sums != nullptr) store_share<kWidth>(sums + offset, place, share);
}

// One row's group: dz from dy, and what the row adds to the sums. `values` are z on entry.
template <int kWidth>
__device__ inline void differentiate_share(const float (&dy)[kValues], const float (&values)[kValues],
                                           const float (&weight)[kValues], const Place& place, float mean, float rstd,
                                           float (&dz)[kValues], float (&xhat)[kValues]) {
  const float length = static_cast<float>(place.length);
  float slope[kValues];
  float sum = 0.0f;
  float sum_xhat = 0.0f;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    const Activation a = activation_with_slope(values[i]);
    xhat[i] = (a.value - mean) * rstd;
    slope[i] = a.slope;
    dz[i] = dy[i] * weight[i];  // 0 where this lane holds nothing
    sum += dz[i];
    sum_xhat += dz[i] * xhat[i];
  }
  const float mean_g = team_sum(sum, place.lanes) / length;
  const float mean_g_xhat = team_sum(sum_xhat, place.lanes) / length;
#pragma unroll
  for (int i = 0; i < kValues; ++i) dz[i] = rstd * (dz[i] - mean_g - xhat[i] * mean_g_xhat) * slope[i];
}

// Grid (strips * chunks), as in forward.
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    differentiate_short_groups(const float* __restrict__ dy, const float* __restrict__ product, Biases biases,
                               const float* __restrict__ weight, const float* __restrict__ mean,
                               const float* __restrict__ rstd, Shape shape, Teams teams, Chunks chunks,
                               float* __restrict__ dz, PartialSums partial) {
  const Place place = place_of(shape, teams, blockIdx.x);
  float group_weight[kValues];
  float linear_bias[kValues];
  float added_bias[kValues];
  float weight_sums[kValues] = {};
  float bias_sums[kValues] = {};
  float shift_sums[kValues] = {};
  const int64_t begin = place.chunk * chunks.rows;
  const int64_t end = begin + chunks.rows < shape.rows ? begin + chunks.rows : shape.rows;
  load_share<kWidth>(weight + place.column, place, group_weight);
  if constexpr (kAddBiases) {
    load_share<kWidth>(biases.linear + place.column, place, linear_bias);
    load_added_bias<kWidth>(biases, begin, place, added_bias);
  }
  for (int64_t first = begin; first < end; first += kRowsInFlight) {
    float gradients[kRowsInFlight][kValues];
    float values[kRowsInFlight][kValues];
    float means[kRowsInFlight];
    float rstds[kRowsInFlight];
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      const int64_t row = first + i;
      if (row < end) {
        load_share<kWidth>(dy + row * shape.columns + place.column, place, gradients[i]);
        load_share<kWidth>(product + row * shape.columns + place.column, place, values[i]);
        means[i] = place.length > 0 ? mean[row * shape.groups + place.group] : 0.0f;
        rstds[i] = place.length > 0 ? rstd[row * shape.groups + place.group] : 0.0f;
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      const int64_t row = first + i;
      if (row >= end) break;
      if constexpr (kAddBiases) {
        if (biases.row_stride != 0) load_added_bias<kWidth>(biases, row, place, added_bias);
#pragma unroll
        for (int j = 0; j < kValues; ++j) values[i][j] = biased(values[i][j], linear_bias[j], added_bias[j]);
      }
      float share[kValues];
      float xhat[kValues];
      differentiate_share<kWidth>(gradients[i], values[i], group_weight, place, means[i], rstds[i], share, xhat);
      if (dz != nullptr) store_share<kWidth>(dz + row * shape.columns + place.column, place, share);
#pragma unroll
      for (int j = 0; j < kValues; ++j) {
        weight_sums[j] += gradients[i][j] * xhat[j];
        bias_sums[j] += gradients[i][j];
        shift_sums[j] += share[j];
      }
    }
  }
  const int64_t offset = place.chunk * shape.columns + place.column;
  store_partial_share<kWidth>(partial.weight, offset, place, weight_sums);
  store_partial_share<kWidth>(partial.bias, offset, place, bias_sums);
  store_partial_share<kWidth>(partial.shift, offset, place, shift_sums);
}

struct AddDoubles {
  __device__ double operator()(double left, double right) const { return left + right; }
};

// Grid (rows * groups): one block a group, which it reads twice; dz only.
__global__ void __launch_bounds__(kThreads)
    differentiate_long_groups(const float* dy, const float* product, Biases biases, const float* weight,
                              const float* mean, const float* rstd, Shape shape, float* dz) {
  __shared__ double scratch[kMaxWarps];
  const int64_t length = shape.columns / shape.groups;
  for (int64_t item = blockIdx.x; item < shape.rows * shape.groups; item += gridDim.x) {
    const int64_t row = item / shape.groups;
    const int64_t first = item % shape.groups * length;
    double sum = 0.0;
    double sum_xhat = 0.0;
    for (int64_t column = first + threadIdx.x; column < first + length; column += blockDim.x) {
      const float xhat = (activation(biased_at(product, biases, row, column, shape.columns)) - mean[item]) * rstd[item];
      const float g = dy[row * shape.columns + column] * weight[column];
      sum += g;
      sum_xhat += g * xhat;
    }
    const double count = static_cast<double>(length);
    const float mean_g = static_cast<float>(block_reduce(sum, 0.0, scratch, AddDoubles()) / count);
    const float mean_g_xhat = static_cast<float>(block_reduce(sum_xhat, 0.0, scratch, AddDoubles()) / count);
    for (int64_t column = first + threadIdx.x; column < first + length; column += blockDim.x) {
      const Activation a = activation_with_slope(biased_at(product, biases, row, column, shape.columns));
      const float xhat = (a.value - mean[item]) * rstd[item];
      const float g = dy[row * shape.columns + column] * weight[column];
      dz[row * shape.columns + column] = rstd[item] * (g - mean_g - xhat * mean_g_xhat) * a.slope;
    }
  }
}

// The partial sums where groups are long: grid (columns / kThreads * chunks), one thread a column.
__global__ void __launch_bounds__(kThreads)
    sum_chunks_of_columns(const float* dy, const float* product, Biases biases, const float* mean, const float* rstd,
                          const float* dz, Shape shape, Chunks chunks, PartialSums partial) {
  const int64_t strips = (shape.columns + blockDim.x - 1) / blockDim.x;
  const int64_t column = blockIdx.x % strips * blockDim.x + threadIdx.x;
  const int64_t chunk = blockIdx.x / strips;
  if (column >= shape.columns) return;
  const int64_t group = column / (shape.columns / shape.groups);
  const int64_t begin = chunk * chunks.rows;
  const int64_t end = begin + chunks.rows < shape.rows ? begin + chunks.rows : shape.rows;
  float weight_sum = 0.0f;
  float bias_sum = 0.0f;
  float shift_sum = 0.0f;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t item = row * shape.groups + group;
    const float gradient = dy[row * shape.columns + column];
    bias_sum += gradient;
    if (partial.weight != nullptr) {
      const float value = activation(biased_at(product, biases, row, column, shape.columns));
      weight_sum += gradient * ((value - mean[item]) * rstd[item]);
    }
    if (partial.shift != nullptr) shift_sum += dz[row * shape.columns + column];
  }
  const int64_t offset = chunk * shape.columns + column;
  store_partial(partial.weight, offset, weight_sum);
  store_partial(partial.bias, offset, bias_sum);
  store_partial(partial.shift, offset, shift_sum);
}

// Grid (columns / 32), block (32 columns, 8 lanes of chunks): adds the chunks up, in double and in a fixed order.
constexpr int kChunkLanes = 8;

__global__ void add_chunks(PartialSums partial, int64_t chunks, int64_t columns, Gradients gradients) {
  __shared__ double lane_sums[kChunkLanes][kWarpSize];
  const float* const sources[3] = {partial.weight, partial.bias, partial.shift};
  float* const targets[3][2] = {
      {gradients.weight, nullptr}, {gradients.bias, nullptr}, {gradients.linear_bias, gradients.added_bias}};
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpSize + threadIdx.x;
#pragma unroll
  for (int kind = 0; kind < 3; ++kind) {
    if (sources[kind] == nullptr) continue;
    double sum = 0.0;
    if (column < columns) {
      for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += kChunkLanes) {
        sum += sources[kind][chunk * columns + column];
      }
    }
    __syncthreads();  // the kind before has been read
    lane_sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) continue;
    for (int lane = 1; lane < kChunkLanes; ++lane) sum += lane_sums[lane][threadIdx.x];
    if (targets[kind][0] != nullptr) targets[kind][0][column] = static_cast<float>(sum);
    if (targets[kind][1] != nullptr) targets[kind][1][column] = static_cast<float>(sum);
  }
}

// Never nothing: torch gives empty tensors a null address, which would read as "not wanted" below, and the gradients of
// no rows are zeros that must be written.
int64_t backward_scratch(const Shape& shape) {
  const int64_t chunks = chunks_of(shape.rows, kRowsPerBlock).count;
  return 3 * (chunks < 1 ? 1 : chunks) * shape.columns;
}

inline PartialSums partial_sums(const Gradients& gradients, float* scratch, int64_t floats) {
  const bool wants_shift = gradients.linear_bias != nullptr || gradients.added_bias != nullptr;
  return {gradients.weight != nullptr ? scratch : nullptr, gradients.bias != nullptr ? scratch + floats : nullptr,
          wants_shift ? scratch + 2 * floats : nullptr};
}

LaunchStatus launch_short_groups(const float* dy, const float* product, const Biases& biases, const float* weight,
                                 const float* mean, const float* rstd, const Shape& shape, const Chunks& chunks,
                                 float* dz, const PartialSums& partial, cudaStream_t stream) {
  const Teams teams = teams_of(shape);
  const int64_t length = shape.columns / shape.groups;
  const unsigned blocks = grid_for(teams.strips * chunks.count);
  // Partial sums begin at multiples of the columns in memory that torch allocated, as dz does.
  if (reads_as_vectors(dy, length) && reads_as_vectors(product, length) && reads_as_vectors(weight, length) &&
      reads_as_vectors(dz, length) && reads_as_vectors(partial.weight, length) &&
      biases_read_as_float4(biases, length)) {
    differentiate_short_groups<4><<<blocks, teams.threads, 0, stream>>>(dy, product, biases, weight, mean, rstd, shape,
                                                                        teams, chunks, dz, partial);
  } else {
    differentiate_short_groups<1><<<blocks, teams.threads, 0, stream>>>(dy, product, biases, weight, mean, rstd, shape,
                                                                        teams, chunks, dz, partial);
  }
  return launched("differentiate_short_groups");
}

LaunchStatus launch_long_groups(const float* dy, const float* product, const Biases& biases, const float* weight,
                                const float* mean, const float* rstd, const Shape& shape, const Chunks& chunks,
                                float* dz, const PartialSums& partial, cudaStream_t stream) {
  if (dz != nullptr) {
    const unsigned threads = threads_for(shape.columns / shape.groups, kThreads);
    differentiate_long_groups<<<grid_for(shape.rows * shape.groups), threads, 0, stream>>>(dy, product, biases, weight,
                                                                                          mean, rstd, shape, dz);
    const LaunchStatus status = launched("differentiate_long_groups");
    if (status.kernel != nullptr) return status;
  }
  if (partial.weight == nullptr && partial.bias == nullptr && partial.shift == nullptr) return {nullptr, nullptr};
  const unsigned blocks = grid_for(ceil_div(shape.columns, kThreads) * chunks.count);
  sum_chunks_of_columns<<<blocks, kThreads, 0, stream>>>(dy, product, biases, mean, rstd, dz, shape, chunks, partial);
  return launched("sum_chunks_of_columns");
}

LaunchStatus launch_backward(const float* dy, const float* product, const Biases& biases, const float* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const Chunks chunks = chunks_of(shape.rows, kRowsPerBlock);
  const PartialSums partial = partial_sums(gradients, scratch, chunks.count * shape.columns);
  if (shape.rows > 0) {
    const auto launch = fits_a_team(shape) ? launch_short_groups : launch_long_groups;
    const LaunchStatus status =
        launch(dy, product, biases, weight, mean, rstd, shape, chunks, gradients.product, partial, stream);
    if (status.kernel != nullptr) return status;
  }
  if (partial.weight == nullptr && partial.bias == nullptr && partial.shift == nullptr) return {nullptr, nullptr};
  add_chunks<<<grid_for(ceil_div(shape.columns, kWarpSize)), dim3(kWarpSize, kChunkLanes), 0, stream>>>(
      partial, chunks.count, shape.columns, gradients);
  return launched("add_chunks");
}
