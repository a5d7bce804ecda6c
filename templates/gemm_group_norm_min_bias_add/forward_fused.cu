// Forward behind the product in one launch: a block finds the minima of its rows and writes all that they are added to.

// y of a block's rows where rows run along memory: every entry takes kRowsPerBlock neighbouring floats.
template <int kWidth>
__device__ inline void write_along_rows(const Broadcast& broadcast, int64_t first_row, const float* minima, float* y) {
  constexpr int kVectors = kRowsPerBlock / kWidth;  // of one entry
  const int vector = threadIdx.x % kVectors * kWidth;
  const int64_t row = first_row + vector;
  if (row >= broadcast.rows) return;
  float least[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) least[i] = minima[vector + i];
#pragma unroll 4
  for (int64_t entry = threadIdx.x / kVectors; entry < broadcast.outer; entry += blockDim.x / kVectors) {
    float values[kWidth];
    load_row_biases<kWidth>(broadcast, entry, row, values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] += least[i];
    store_vector<kWidth>(y + entry * broadcast.rows + row, values);
  }
}

// The same where entries run along memory.
template <int kWidth>
__device__ inline void write_along_entries(const Broadcast& broadcast, int64_t first_row, const float* minima,
                                           float* y) {
  const int64_t entries = broadcast.outer * broadcast.inner;
  for (int i = 0; i < kRowsPerBlock && first_row + i < broadcast.rows; ++i) {
    const int64_t row = first_row + i;
    for (int64_t first = threadIdx.x * kWidth; first < entries; first += blockDim.x * kWidth) {
      const Entry entry = entry_of(first, broadcast.outer, broadcast.inner);
      float values[kWidth];
      load_vector<kWidth>(broadcast.bias + bias_offset(broadcast, entry.outer, row, entry.inner), values);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) values[j] += minima[i];
      store_vector<kWidth>(y + (entry.outer * broadcast.rows + row) * broadcast.inner + entry.inner, values);
    }
  }
}

// Grid (rows / kRowsPerBlock). `by_four`: y, and what is added along it, can be taken four floats at a time.
template <typename Search>
__global__ void __launch_bounds__(kThreads, 1)
    add_bias_to_lowest(Search search, Broadcast broadcast, bool by_four, float* __restrict__ y,
                       int* __restrict__ winners) {
  __shared__ Lowest found[kRowsPerBlock];
  __shared__ float minima[kRowsPerBlock];
  constexpr int kRowWidth = kRowsPerBlock % 4 == 0 ? 4 : 1;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRowsPerBlock;
  for (int64_t first_row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock; first_row < broadcast.rows;
       first_row += step) {
    Lowest lowest[kRowsPerBlock];
#pragma unroll
    for (int i = 0; i < kRowsPerBlock; ++i) lowest[i] = no_value();
    search(first_row, lowest);
    find_lowest(lowest, found);
    if (threadIdx.x < kRowsPerBlock) minima[threadIdx.x] = value_of(found[threadIdx.x].order);
    __syncthreads();
    keep_winners(found, first_row, broadcast.rows, winners);
    if (broadcast.inner == 1) {
      if (by_four) write_along_rows<kRowWidth>(broadcast, first_row, minima, y);
      else write_along_rows<1>(broadcast, first_row, minima, y);
    } else {
      if (by_four) write_along_entries<4>(broadcast, first_row, minima, y);
      else write_along_entries<1>(broadcast, first_row, minima, y);
    }
  }
}

LaunchStatus launch_forward(const Normalisation& normalisation, const Broadcast& broadcast, float* y, int* winners,
                            float* /*minima*/, int device, void* stream_handle) {
  if (normalisation.shape.rows == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const unsigned blocks = grid_for(ceil_div(normalisation.shape.rows, kRowsPerBlock));
  const bool by_four = adds_by_four(broadcast, y, kRowsPerBlock);
  with_search(normalisation, [&](const auto& search, int threads) {
    add_bias_to_lowest<<<blocks, threads, 0, stream>>>(search, broadcast, by_four, y, winners);
  });
  return launched("add_bias_to_lowest");
}
