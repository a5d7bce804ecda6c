// The two products of the backward over what is not zero: dz has one group of columns in each row. Rows come in the
// order of their groups, so that rows of one group share what they read. A float32 sum is kept short: what is summed in
// registers goes to the sums in memory every kDepth, or kListDepth, terms.

constexpr int kRowsTogether = 8;     // rows of dx that a block computes
constexpr int kDepth = 32;           // columns of a group that are summed in one go
constexpr int kColumnsTogether = 8;  // rows of dweight that a block computes
constexpr int kListLanes = 4;        // threads that share a list
constexpr int kListDepth = 64;       // rows of a list that are summed in one go
constexpr int64_t kGatherBlocks = 1024;

// values += source
template <int kWidth>
__device__ inline void add_vector(const float* source, float* values) {
  float others[kWidth];
  load_vector<kWidth>(source, others);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] += others[i];
}

// dx[row] = sum over the group of the row's minimum of dz[row, i] * weight[i]. Grid (strips of features * rows in their
// order / kRowsTogether).
template <int kWidth>
__global__ void __launch_bounds__(kProductThreads)
    multiply_by_groups(Winners winners, Workspace workspace, Shape shape, float* dx) {
  __shared__ float coefficients[kRowsTogether][kDepth];
  __shared__ int rows[kRowsTogether];
  __shared__ int groups[kRowsTogether];
  const int64_t length = shape.columns / shape.groups;
  const int64_t features = winners.features;
  const int64_t strips = (features + blockDim.x * kWidth - 1) / (blockDim.x * kWidth);
  const int64_t items = (shape.rows + kRowsTogether - 1) / kRowsTogether * strips;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t feature = (item % strips * blockDim.x + threadIdx.x) * kWidth;
    const int64_t first = item / strips * kRowsTogether;
    const int count = shape.rows - first < kRowsTogether ? static_cast<int>(shape.rows - first) : kRowsTogether;
    __syncthreads();  // the rows before have been used
    if (threadIdx.x < count) {
      rows[threadIdx.x] = workspace.order[first + threadIdx.x];
      groups[threadIdx.x] = static_cast<int>(winners.columns[rows[threadIdx.x]] / length);
    }
    __syncthreads();
    for (int run = 0, next = 0; run < count; run = next) {  // neighbours of one group
      while (next < count && groups[next] == groups[run]) ++next;
      for (int64_t start = 0; start < length; start += kDepth) {
        const int depth = length - start < kDepth ? static_cast<int>(length - start) : kDepth;
        __syncthreads();  // the coefficients before have been used
        for (int i = threadIdx.x; i < (next - run) * kDepth; i += blockDim.x) {
          const int row = run + i / kDepth;
          if (i % kDepth < depth) coefficients[row][i % kDepth] = workspace.dz[rows[row] * length + start + i % kDepth];
        }
        __syncthreads();
        if (feature >= features) continue;
        const float* const of_group = winners.weight + (groups[run] * length + start) * features + feature;
        float sums[kRowsTogether][kWidth] = {};
#pragma unroll 4
        for (int i = 0; i < depth; ++i) {
          float values[kWidth];
          load_vector<kWidth>(of_group + i * features, values);
#pragma unroll
          for (int row = 0; row < kRowsTogether; ++row) {
            if (row < run || row >= next) continue;
#pragma unroll
            for (int j = 0; j < kWidth; ++j) sums[row][j] += coefficients[row][i] * values[j];
          }
        }
#pragma unroll
        for (int row = 0; row < kRowsTogether; ++row) {
          if (row < run || row >= next) continue;
          float* const target = dx + rows[row] * features + feature;
          if (start > 0) add_vector<kWidth>(target, sums[row]);
          store_vector<kWidth>(target, sums[row]);
        }
      }
    }
  }
}

constexpr int kAcross = kProductThreads / kListLanes;  // threads along the features

// The part of dweight that a block of gather_lists owns.
struct ListTile {
  int64_t group;
  int64_t first;    // of its columns, within the group
  int columns;
  int64_t feature;  // this thread's first
  int across;       // where that lies in the block
  int lane;         // this thread's share of the list
};

template <int kWidth>
using LaneSums = float[kListLanes][kColumnsTogether][kAcross * kWidth];

// lane_sums[lane][i] = sum over this lane's rows of the list of dz[row, i] * x[row]. All threads of the block call.
template <int kWidth>
__device__ inline void sum_list(const Workspace& workspace, const float* x, int64_t length, int64_t features,
                                const ListTile& tile, LaneSums<kWidth>& lane_sums) {
  __shared__ float coefficients[kListDepth][kColumnsTogether];
  __shared__ int rows[kListDepth];
  const int begin = workspace.begins[tile.group];
  const int end = workspace.begins[tile.group + 1];
  for (int start = begin; start < end; start += kListDepth) {
    const int count = end - start < kListDepth ? end - start : kListDepth;
    __syncthreads();  // the rows before have been used
    for (int i = threadIdx.x; i < count * kColumnsTogether; i += blockDim.x) {
      const int64_t row = workspace.order[start + i / kColumnsTogether];
      const int column = i % kColumnsTogether;
      if (column == 0) rows[i / kColumnsTogether] = static_cast<int>(row);
      coefficients[i / kColumnsTogether][column] =
          column < tile.columns ? workspace.dz[row * length + tile.first + column] : 0.0f;
    }
    __syncthreads();
    if (tile.feature >= features) continue;
    float sums[kColumnsTogether][kWidth] = {};
#pragma unroll 4
    for (int i = tile.lane; i < count; i += kListLanes) {
      float values[kWidth];
      load_vector<kWidth>(x + rows[i] * features + tile.feature, values);
#pragma unroll
      for (int column = 0; column < kColumnsTogether; ++column) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sums[column][j] += coefficients[i][column] * values[j];
      }
    }
#pragma unroll
    for (int column = 0; column < kColumnsTogether; ++column) {
      float* const target = &lane_sums[tile.lane][column][tile.across];
      if (start > begin) add_vector<kWidth>(target, sums[column]);
      store_vector<kWidth>(target, sums[column]);
    }
  }
}

// dweight[column] = sum over the list of the column's group of dz[row, column] * x[row], for groups that have one.
// Blocks, as many as there are or kGatherBlocks, take strips of features * columns of a group / kColumnsTogether *
// groups in turn.
template <int kWidth>
__global__ void __launch_bounds__(kProductThreads, 2)
    gather_lists(Workspace workspace, const float* __restrict__ x, Shape shape, int64_t features,
                 float* __restrict__ dweight) {
  __shared__ __align__(16) LaneSums<kWidth> lane_sums;
  const int64_t length = shape.columns / shape.groups;
  const int64_t strips = (features + kAcross * kWidth - 1) / (kAcross * kWidth);
  const int64_t tiles = (length + kColumnsTogether - 1) / kColumnsTogether;
  const int64_t items = strips * tiles * workspace.listed[shape.groups];
  const int across = threadIdx.x % kAcross * kWidth;
  const int lane = threadIdx.x / kAcross;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t group = workspace.listed[item / strips / tiles];
    const int64_t first = item / strips % tiles * kColumnsTogether;
    const int columns = length - first < kColumnsTogether ? static_cast<int>(length - first) : kColumnsTogether;
    const ListTile tile = {group, first, columns, item % strips * kAcross * kWidth + across, across, lane};
    sum_list<kWidth>(workspace, x, length, features, tile, lane_sums);
    __syncthreads();
    for (int column = lane; column < columns && tile.feature < features; column += kListLanes) {
      float sums[kWidth] = {};
#pragma unroll
      for (int i = 0; i < kListLanes; ++i) add_vector<kWidth>(&lane_sums[i][column][across], sums);
      store_vector<kWidth>(dweight + (group * length + first + column) * features + tile.feature, sums);
    }
    __syncthreads();  // the lanes' sums have been read
  }
}

// dweight[column] = 0 where no row's minimum lies in the column's group. Grid (strips of features * columns /
// kColumnsTogether).
template <int kWidth>
__global__ void __launch_bounds__(kProductThreads)
    clear_unlisted(const int* __restrict__ begins, Shape shape, int64_t features, float* __restrict__ dweight) {
  const float zeros[kWidth] = {};
  const int columns = static_cast<int>(shape.columns);
  const int length = columns / static_cast<int>(shape.groups);
  const int64_t strips = (features + blockDim.x * kWidth - 1) / (blockDim.x * kWidth);
  const int tiles = (columns - 1) / kColumnsTogether + 1;
  for (int64_t item = blockIdx.x; item < strips * tiles; item += gridDim.x) {
    const int64_t feature = (item % strips * blockDim.x + threadIdx.x) * kWidth;
    const int first = static_cast<int>(item / strips) * kColumnsTogether;
    if (feature >= features) continue;
    for (int column = first; column < columns && column - first < kColumnsTogether; ++column) {
      const int group = column / length;
      if (begins[group] == begins[group + 1]) store_vector<kWidth>(dweight + column * features + feature, zeros);
    }
  }
}

LaunchStatus launch_input_gradient(const Winners& winners, const Workspace& workspace, const Shape& shape, float* dx,
                                   int device, void* stream_handle) {
  const int64_t features = winners.features;
  if (shape.rows == 0 || features == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const bool by_four = reads_as_vectors(winners.weight, features) && reads_as_vectors(dx, features);
  const unsigned threads = threads_for(by_four ? features : 4 * features, kProductThreads);
  const int64_t strips = ceil_div(features, static_cast<int64_t>(threads) * (by_four ? 4 : 1));
  const unsigned blocks = grid_for(ceil_div(shape.rows, kRowsTogether) * strips);
  if (by_four) {
    multiply_by_groups<4><<<blocks, threads, 0, stream>>>(winners, workspace, shape, dx);
  } else {
    multiply_by_groups<1><<<blocks, threads, 0, stream>>>(winners, workspace, shape, dx);
  }
  return launched("multiply_by_groups");
}

template <int kWidth>
LaunchStatus launch_weight_kernels(const Workspace& workspace, const float* x, const Shape& shape, int64_t features,
                                   float* dweight, cudaStream_t stream) {
  const unsigned threads = threads_for(features * 4 / kWidth, kProductThreads);
  const int64_t clear_strips = ceil_div(features, static_cast<int64_t>(threads) * kWidth);
  const int64_t clear_items = clear_strips * ceil_div(shape.columns, kColumnsTogether);
  clear_unlisted<kWidth>
      <<<grid_for(clear_items), threads, 0, stream>>>(workspace.begins, shape, features, dweight);
  const LaunchStatus status = launched("clear_unlisted");
  if (status.kernel != nullptr || shape.rows == 0) return status;
  const int64_t listed = shape.groups < shape.rows ? shape.groups : shape.rows;  // groups that can have a list
  const int64_t strips = ceil_div(features, kAcross * kWidth);
  const int64_t items = strips * ceil_div(shape.columns / shape.groups, kColumnsTogether) * listed;
  const unsigned blocks = static_cast<unsigned>(items < kGatherBlocks ? items : kGatherBlocks);
  gather_lists<kWidth><<<blocks, kProductThreads, 0, stream>>>(workspace, x, shape, features, dweight);
  return launched("gather_lists");
}

LaunchStatus launch_weight_gradient(const Winners& winners, const Workspace& workspace, const Shape& shape,
                                    float* dweight, int device, void* stream_handle) {
  if (winners.features == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  if (reads_as_vectors(winners.x, winners.features) && reads_as_vectors(dweight, winners.features)) {
    return launch_weight_kernels<4>(workspace, winners.x, shape, winners.features, dweight, stream);
  }
  return launch_weight_kernels<1>(workspace, winners.x, shape, winners.features, dweight, stream);
}
