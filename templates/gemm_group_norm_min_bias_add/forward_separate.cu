// Forward behind the product in two launches: the minima of all rows, then the sums of minima and bias.

// Grid (rows / kRowsPerBlock).
template <typename Search>
__global__ void __launch_bounds__(kThreads, 1)
    find_minima(Search search, float* __restrict__ minima, int* __restrict__ winners) {
  __shared__ Lowest found[kRowsPerBlock];
  const int64_t rows = search.source.shape.rows;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRowsPerBlock;
  for (int64_t first_row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock; first_row < rows; first_row += step) {
    Lowest lowest[kRowsPerBlock];
#pragma unroll
    for (int i = 0; i < kRowsPerBlock; ++i) lowest[i] = no_value();
    search(first_row, lowest);
    find_lowest(lowest, found);
    const int64_t row = first_row + threadIdx.x;
    if (threadIdx.x < kRowsPerBlock && row < rows) minima[row] = value_of(found[threadIdx.x].order);
    keep_winners(found, first_row, rows, winners);
  }
}

// Lines that a thread writes, one below another: what belongs to its columns is loaded once.
constexpr int kLines = 8;

// Grid (lines / kLines * strips), a strip being what a block covers of a line. Where rows run along memory a line is an
// entry; else it is a row of one outer index.
template <bool kRowsRun, int kWidth>
__global__ void __launch_bounds__(kThreads)
    add_bias(const float* __restrict__ minima, Broadcast broadcast, float* __restrict__ y) {
  const int64_t along = kRowsRun ? broadcast.rows : broadcast.inner;
  const int64_t lines = kRowsRun ? broadcast.outer : broadcast.outer * broadcast.rows;
  const int64_t strips = (along + blockDim.x * kWidth - 1) / (blockDim.x * kWidth);
  for (int64_t item = blockIdx.x; item < (lines + kLines - 1) / kLines * strips; item += gridDim.x) {
    const int64_t position = (item % strips * blockDim.x + threadIdx.x) * kWidth;
    if (position >= along) continue;
    float least[kWidth] = {};
    if constexpr (kRowsRun) load_vector<kWidth>(minima + position, least);
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
      const int64_t line = item / strips * kLines + i;
      if (line >= lines) break;
      float values[kWidth];
      if constexpr (kRowsRun) {
        load_row_biases<kWidth>(broadcast, line, position, values);
      } else {
        const int64_t row = line % broadcast.rows;
        load_vector<kWidth>(broadcast.bias + bias_offset(broadcast, line / broadcast.rows, row, position), values);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) least[j] = minima[row];
      }
#pragma unroll
      for (int j = 0; j < kWidth; ++j) values[j] += least[j];
      store_vector<kWidth>(y + line * along + position, values);
    }
  }
}

template <bool kRowsRun, int kWidth>
void launch_add_bias(const float* minima, const Broadcast& broadcast, float* y, cudaStream_t stream) {
  const int64_t along = kRowsRun ? broadcast.rows : broadcast.inner;
  const int64_t lines = kRowsRun ? broadcast.outer : broadcast.outer * broadcast.rows;
  const unsigned threads = threads_for(along * (4 / kWidth), kThreads);
  const int64_t strips = ceil_div(along, static_cast<int64_t>(threads) * kWidth);
  add_bias<kRowsRun, kWidth>
      <<<grid_for(ceil_div(lines, kLines) * strips), threads, 0, stream>>>(minima, broadcast, y);
}

LaunchStatus launch_forward(const Normalisation& normalisation, const Broadcast& broadcast, float* y, int* winners,
                            float* minima, int device, void* stream_handle) {
  if (normalisation.shape.rows == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const unsigned blocks = grid_for(ceil_div(normalisation.shape.rows, kRowsPerBlock));
  with_search(normalisation, [&](const auto& search, int threads) {
    find_minima<<<blocks, threads, 0, stream>>>(search, minima, winners);
  });
  const LaunchStatus status = launched("find_minima");
  if (status.kernel != nullptr || broadcast.outer * broadcast.inner == 0) return status;
  const bool by_four = adds_by_four(broadcast, y, 4);
  if (broadcast.inner == 1 && by_four) launch_add_bias<true, 4>(minima, broadcast, y, stream);
  else if (broadcast.inner == 1) launch_add_bias<true, 1>(minima, broadcast, y, stream);
  else if (by_four) launch_add_bias<false, 4>(minima, broadcast, y, stream);
  else launch_add_bias<false, 1>(minima, broadcast, y, stream);
  return launched("add_bias");
}
