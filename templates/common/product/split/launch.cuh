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

inline LaunchStatus split_operand(const Operand& operand, int64_t depth, int64_t rows, uint8_t* tiles,
                                  unsigned* magnitudes, cudaStream_t stream) {
  const int64_t steps = steps_of(depth);
  const int64_t extent = operand.extent;
  const unsigned blocks = static_cast<unsigned>(rows);
  if (operand.depth_runs) {
    if (reads_as_vectors(operand.values, depth)) {
      split_rows<4><<<blocks, kSplitThreads, 0, stream>>>(operand.values, extent, depth, steps, magnitudes, tiles);
    } else {
      split_rows<1><<<blocks, kSplitThreads, 0, stream>>>(operand.values, extent, depth, steps, magnitudes, tiles);
    }
    return launched("split_rows");
  }
  if (cudaMemsetAsync(magnitudes, 0, rows * sizeof(unsigned), stream) != cudaSuccess) {
    return launched("clearing magnitudes");
  }
  const unsigned layers = static_cast<unsigned>(ceil_div(depth, kDepthsTogether));
  const dim3 grid(static_cast<unsigned>(steps), static_cast<unsigned>(rows / kTile));
  if (reads_as_vectors(operand.values, extent)) {
    const dim3 strips(static_cast<unsigned>(ceil_div(extent, 128)), layers);
    measure_columns<4><<<strips, kSplitThreads, 0, stream>>>(operand.values, extent, depth, magnitudes);
    const LaunchStatus status = launched("measure_columns");
    if (status.kernel != nullptr) return status;
    split_columns<4><<<grid, kSplitThreads, 0, stream>>>(operand.values, extent, depth, steps, magnitudes, tiles);
  } else {
    const dim3 strips(static_cast<unsigned>(ceil_div(extent, 32)), layers);
    measure_columns<1><<<strips, kSplitThreads, 0, stream>>>(operand.values, extent, depth, magnitudes);
    const LaunchStatus status = launched("measure_columns");
    if (status.kernel != nullptr) return status;
    split_columns<1><<<grid, kSplitThreads, 0, stream>>>(operand.values, extent, depth, steps, magnitudes, tiles);
  }
  return launched("split_columns");
}

inline SplitOperand split_operand_of(const Operand& operand, int64_t depth, const uint8_t* tiles,
                                     const unsigned* magnitudes) {
  return {tiles, magnitudes, operand.values, operand.depth_runs ? depth : 1, operand.depth_runs ? 1 : operand.extent};
}

// Clusters that run at the same time; 0 and a reason where there is none.
inline cudaError_t clusters_at_once(int device, int& clusters) {
  const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(multiply_split),
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
  return cudaOccupancyMaxActiveClusters(&clusters, multiply_split, &config);
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
  LaunchStatus status = split_operand(left, k, layout.rows_left, left_tiles, left_magnitudes, stream);
  if (status.kernel != nullptr) return status;
  status = split_operand(right, k, before, right_tiles, right_magnitudes, stream);
  if (status.kernel != nullptr) return status;
  if (cudaMemsetAsync(counters, 0, layout.counters() * sizeof(unsigned), stream) != cudaSuccess) {
    return launched("clearing counters");
  }
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
