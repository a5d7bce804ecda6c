// Chooses, splits and multiplies.

// Below any of these, splitting costs more than tensor cores save: rows or columns, tiles for half of an H100, work.
constexpr int64_t kFewestRows = kSplitFrom > 0 ? 256 : 1;
constexpr int64_t kFewestResults = kSplitFrom > 0 ? 64 * int64_t{kTile} * kTile : 1;
constexpr int64_t kFewestProducts = int64_t{1} << kSplitFrom;
// A right matrix that has to be transposed costs twice as much to split. So either so many rows share it, or there are
// twice as many products.
constexpr int64_t kFewestSharing = kSplitFrom > 0 ? 512 : 1;

inline int device_attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess ? value : 0;
}

// Where the parts of the scratch memory lie.
struct SplitLayout {
  int64_t steps;
  int64_t rows_left;  // of all tiles of clusters
  int64_t rows_right;

  SplitLayout(int64_t m, int64_t n, int64_t k)
      : steps(steps_of(k)),
        rows_left(ceil_div(m, kTile * kClusterM) * kTile * kClusterM),
        rows_right(ceil_div(n, kTile * kClusterN) * kTile * kClusterN) {}

  int64_t bytes_of(int64_t rows) const { return rows * steps * kLine; }
  int64_t counters() const { return 1 + rows_right / kTile; }  // of LaterRows
  int64_t bytes() const {
    return bytes_of(rows_left + rows_right) +
           (rows_left + rows_right + counters()) * static_cast<int64_t>(sizeof(unsigned));
  }
};

int64_t split_scratch(const Operand& left, const Operand& right, int64_t k, int device) {
  const int64_t m = left.extent;
  const int64_t n = right.extent;
  constexpr int64_t kMostRows = int64_t{1} << 22;  // by the grids of the splitting kernels
  if (m < kFewestRows || n < kFewestRows || m > kMostRows || n > kMostRows || k > kMostRows) return 0;
  if (k == 0 || m * n < kFewestResults || m * n < kFewestProducts / k) return 0;
  if (!right.depth_runs && m < kFewestSharing && m * n / 2 < kFewestProducts / k) return 0;
  if (device_attribute(cudaDevAttrComputeCapabilityMajor, device) != 9) return 0;
  if (device_attribute(cudaDevAttrComputeCapabilityMinor, device) != 0) return 0;
  return SplitLayout(m, n, k).bytes();
}

// Splits rows along which depth runs, of one matrix or of both at once, and clears counters.
inline LaunchStatus split_by_rows(const RowsToSplit& left, const RowsToSplit& right, int64_t depth, unsigned* counters,
                                  int64_t count, cudaStream_t stream) {
  const bool in_vectors = reads_as_vectors(left.source, depth) && reads_as_vectors(right.source, depth);
  const auto kernel = in_vectors ? split_rows<4> : split_rows<1>;
  const unsigned blocks = static_cast<unsigned>(left.count + right.count);
  kernel<<<blocks, kSplitThreads, 0, stream>>>(left, right, depth, steps_of(depth), counters, count);
  return launched("split_rows");
}

// Splits rows of a matrix along which depth does not run.
inline LaunchStatus split_by_columns(const RowsToSplit& rows, int64_t depth, cudaStream_t stream) {
  if (cudaMemsetAsync(rows.magnitudes, 0, rows.count * sizeof(unsigned), stream) != cudaSuccess) {
    return launched("clearing magnitudes");
  }
  const bool in_vectors = reads_as_vectors(rows.source, rows.extent);
  const auto measure = in_vectors ? measure_columns<4> : measure_columns<1>;
  const dim3 strips(static_cast<unsigned>(ceil_div(rows.extent, in_vectors ? 128 : 32)),
                    static_cast<unsigned>(ceil_div(depth, kDepthsTogether)));
  measure<<<strips, kSplitThreads, 0, stream>>>(rows.source, rows.extent, depth, rows.magnitudes);
  const LaunchStatus status = launched("measure_columns");
  if (status.kernel != nullptr) return status;
  const auto split = in_vectors ? split_columns<4> : split_columns<1>;
  const int64_t steps = steps_of(depth);
  const dim3 grid(static_cast<unsigned>(steps), static_cast<unsigned>(rows.count / kTile));
  split<<<grid, kSplitThreads, 0, stream>>>(rows.source, rows.extent, depth, steps, rows.magnitudes, rows.tiles);
  return launched("split_columns");
}

// Splits both matrices, and clears counters where rows of either are split.
inline LaunchStatus split_operands(const Operand& left, const RowsToSplit& left_rows, const Operand& right,
                                   const RowsToSplit& right_rows, int64_t depth, unsigned* counters, int64_t count,
                                   cudaStream_t stream) {
  LaunchStatus status = {nullptr, nullptr};
  if (left.depth_runs || right.depth_runs) {
    status = split_by_rows(left.depth_runs ? left_rows : RowsToSplit{}, right.depth_runs ? right_rows : RowsToSplit{},
                           depth, counters, count, stream);
  }
  if (status.kernel == nullptr && !left.depth_runs) status = split_by_columns(left_rows, depth, stream);
  if (status.kernel == nullptr && !right.depth_runs) status = split_by_columns(right_rows, depth, stream);
  return status;
}

inline SplitOperand split_operand_of(const Operand& operand, int64_t depth, const uint8_t* tiles,
                                     const unsigned* magnitudes) {
  return {tiles, magnitudes, operand.values, operand.depth_runs ? depth : 1, operand.depth_runs ? 1 : operand.extent};
}

// Clusters that run at the same time on a device; 0 and a reason where there is none. Asked for once: the first kernels
// of a product are short, so the GPU waits for a host that is slow.
inline cudaError_t clusters_at_once(int device, int& clusters) {
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices];
  clusters = device >= 0 && device < kDevices ? known[device].load() : 0;
  if (clusters > 0) return cudaSuccess;
  cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(multiply_split),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, kMultiplyShared);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = kCluster;
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = device_attribute(cudaDevAttrMultiProcessorCount, device) / kCluster * kCluster;
  config.blockDim = kMultiplyThreads;
  config.dynamicSmemBytes = kMultiplyShared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  error = cudaOccupancyMaxActiveClusters(&clusters, multiply_split, &config);
  if (error == cudaSuccess && device >= 0 && device < kDevices) known[device].store(clusters);
  return error;
}

// Whether rows of the right matrix may be split while the product runs: it has to last long enough for each of them.
inline bool splits_beside(const Operand& right, int64_t k, int64_t m) {
  constexpr int64_t kLongEnough = 1024;
  return m >= kLongEnough && right.depth_runs && reads_as_vectors(right.values, k);
}

// Rows of the right matrix that the first tiles of all clusters need.
inline int64_t rows_at_first(int clusters, int64_t clusters_m) {
  return ceil_div(clusters, clusters_m < kBand ? clusters_m : kBand) * kClusterN * kTile;
}

LaunchStatus launch_split_product(const Operand& left, const Operand& right, int64_t k, float* target, uint8_t* scratch,
                                  int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const int64_t m = left.extent;
  const int64_t n = right.extent;
  const SplitLayout layout(m, n, k);
  uint8_t* const left_tiles = scratch;
  uint8_t* const right_tiles = left_tiles + layout.bytes_of(layout.rows_left);
  unsigned* const left_magnitudes = reinterpret_cast<unsigned*>(right_tiles + layout.bytes_of(layout.rows_right));
  unsigned* const right_magnitudes = left_magnitudes + layout.rows_left;
  unsigned* const counters = right_magnitudes + layout.rows_right;
  int clusters = 0;
  const cudaError_t error = clusters_at_once(device, clusters);
  if (error != cudaSuccess || clusters == 0) {
    cudaGetLastError();
    return {"multiply_split", error != cudaSuccess ? cudaGetErrorString(error) : "no cluster of blocks fits a device"};
  }
  const int64_t clusters_m = layout.rows_left / (kTile * kClusterM);
  const int64_t at_first = splits_beside(right, k, m) ? rows_at_first(clusters, clusters_m) : layout.rows_right;
  const int64_t before = at_first < layout.rows_right ? at_first : layout.rows_right;
  const RowsToSplit left_rows = {left.values, m, layout.rows_left, left_magnitudes, left_tiles};
  const RowsToSplit right_rows = {right.values, n, before, right_magnitudes, right_tiles};
  const LaunchStatus status =
      split_operands(left, left_rows, right, right_rows, k, counters, layout.counters(), stream);
  if (status.kernel != nullptr) return status;
  const LaterRows later = {static_cast<int>(before), static_cast<int>(layout.rows_right),
                           counters,                 counters + 1,
                           right_magnitudes,         right_tiles};
  const SplitProduct product = {split_operand_of(left, k, left_tiles, left_magnitudes),
                                split_operand_of(right, k, right_tiles, right_magnitudes),
                                m,
                                n,
                                k,
                                static_cast<int>(layout.steps),
                                static_cast<int>(clusters_m),
                                static_cast<int>(layout.rows_right / (kTile * kClusterN)),
                                later};
  const int64_t items = int64_t{product.clusters_m} * product.clusters_n;
  const unsigned blocks = static_cast<unsigned>(items < clusters ? items : clusters) * kCluster;
  multiply_split<<<blocks, kMultiplyThreads, kMultiplyShared, stream>>>(product, target);
  return launched("multiply_split");
}
