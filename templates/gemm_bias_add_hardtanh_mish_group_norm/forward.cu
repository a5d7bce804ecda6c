// Forward behind the product: biases, Hardtanh, Mish and group norm in one launch; the product is read once where a
// warp holds a group, and the rest stays in registers.

// Grid (strips * chunks).
template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    normalise_short_groups(const float* __restrict__ product, Biases biases, const float* __restrict__ weight,
                           const float* __restrict__ bias, Shape shape, Teams teams, Chunks chunks, float eps,
                           float* __restrict__ y, float* __restrict__ mean, float* __restrict__ rstd) {
  const Place place = place_of(shape, teams, blockIdx.x);
  float group_weight[kValues];
  float group_bias[kValues];
  float linear_bias[kValues];
  float added_bias[kValues];
  const int64_t begin = place.chunk * chunks.rows;
  const int64_t end = begin + chunks.rows < shape.rows ? begin + chunks.rows : shape.rows;
  load_share<kWidth>(weight + place.column, place, group_weight);
  load_share<kWidth>(bias + place.column, place, group_bias);
  if constexpr (kAddBiases) {
    load_share<kWidth>(biases.linear + place.column, place, linear_bias);
    load_added_bias<kWidth>(biases, begin, place, added_bias);
  }
  for (int64_t first = begin; first < end; first += kRowsInFlight) {
    float values[kRowsInFlight][kValues];
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      if (first + i < end) {
        load_share<kWidth>(product + (first + i) * shape.columns + place.column, place, values[i]);
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
      float normalised[kValues];
#pragma unroll
      for (int j = 0; j < kValues; ++j) normalised[j] = activation(values[i][j]);
      float row_mean;
      float row_rstd;
      // Hardtanh makes groups of equal values common.
      normalise_share<kWidth>(normalised, group_weight, group_bias, place, eps, row_mean, row_rstd);
      store_share<kWidth>(y + row * shape.columns + place.column, place, normalised);
      if (place.lane == 0 && place.length > 0) {
        mean[row * shape.groups + place.group] = row_mean;
        rstd[row * shape.groups + place.group] = row_rstd;
      }
    }
  }
}

// The moments of the activations of one row's group, in every thread of the block.
__device__ inline Moments block_activation_moments(const float* product, const Biases& biases, int64_t row,
                                                   int64_t column, int64_t length, int64_t columns,
                                                   Moments* scratch) {
  const MergeMoments merge;
  Moments running = {0.0f, 0.0f, 0.0f};
  const int64_t tiled = tiled_length(length);
  for (int64_t start = threadIdx.x; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      values[i] = activation(biased_at(product, biases, row, column + start + i * blockDim.x, columns));
    }
    running = merge(running, moments_of(values));
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    running = merge(running, Moments{1.0f, activation(biased_at(product, biases, row, column + i, columns)), 0.0f});
  }
  return block_reduce(running, Moments{0.0f, 0.0f, 0.0f}, scratch, merge);
}

// Grid (rows * groups): one block a group, which it reads twice.
__global__ void __launch_bounds__(kThreads)
    normalise_long_groups(const float* product, Biases biases, const float* weight, const float* bias, Shape shape,
                          float eps, float* y, float* mean, float* rstd) {
  __shared__ Moments scratch[kMaxWarps];
  const int64_t length = shape.columns / shape.groups;
  for (int64_t item = blockIdx.x; item < shape.rows * shape.groups; item += gridDim.x) {
    const int64_t row = item / shape.groups;
    const int64_t first = item % shape.groups * length;
    const Moments moments =
        block_activation_moments(product, biases, row, first, length, shape.columns, scratch);
    const float group_rstd = reciprocal_deviation(moments.m2, static_cast<float>(length), eps);
    if (threadIdx.x == 0) {
      mean[item] = moments.mean;
      rstd[item] = group_rstd;
    }
    for (int64_t column = first + threadIdx.x; column < first + length; column += blockDim.x) {
      const float value = activation(biased_at(product, biases, row, column, shape.columns));
      y[row * shape.columns + column] = (value - moments.mean) * (group_rstd * weight[column]) + bias[column];
    }
  }
}

// Whether rows, groups and all that lies along the columns can be read four floats at a time.
inline bool biases_read_as_float4(const Biases& biases, int64_t length) {
  if (!kAddBiases) return true;
  return reads_as_vectors(biases.linear, length) &&
         (biases.column_stride == 0 || reads_as_vectors(biases.added, length));
}

LaunchStatus launch_forward(const float* product, const Biases& biases, const float* weight, const float* bias,
                            const Shape& shape, float eps, float* y, float* mean, float* rstd, int device,
                            void* stream_handle) {
  if (shape.rows == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const int64_t length = shape.columns / shape.groups;
  if (!fits_a_team(shape)) {
    normalise_long_groups<<<grid_for(shape.rows * shape.groups), threads_for(length, kThreads), 0, stream>>>(
        product, biases, weight, bias, shape, eps, y, mean, rstd);
    return launched("normalise_long_groups");
  }
  const Teams teams = teams_of(shape);
  const Chunks chunks = chunks_of(shape.rows, kRowsPerBlock);
  const unsigned blocks = grid_for(teams.strips * chunks.count);
  if (reads_as_vectors(product, length) && reads_as_vectors(weight, length) && reads_as_vectors(bias, length) &&
      reads_as_vectors(y, length) && biases_read_as_float4(biases, length)) {
    normalise_short_groups<4><<<blocks, teams.threads, 0, stream>>>(product, biases, weight, bias, shape, teams,
                                                                    chunks, eps, y, mean, rstd);
  } else {
    normalise_short_groups<1><<<blocks, teams.threads, 0, stream>>>(product, biases, weight, bias, shape, teams,
                                                                    chunks, eps, y, mean, rstd);
  }
  return launched("normalise_short_groups");
}
