// The gradient of a minimum reaches one channel of the row, and behind group norm only the group of that channel. With
// j the column of the minimum, g the gradient of it, n the length of a group and xhat = (z - mean) * rstd,
//     dz[i] = g * weight[j] * rstd * ((i == j) - (1 + xhat[i] * xhat[j]) / n)    within the group, 0 outside,
// and dweight[j] = sum(g * xhat[j]), dbias[j] = sum(g), each over the rows whose minimum lies in column j. All that has
// to be summed over rows is summed over lists: of each group's rows, in ascending order. What is left of the one after
// the other in dz may be little, and whole rows of gradients are proportional to it: rounding z would show. So z of
// these groups is computed again, in double.

struct AddDoubles {
  __device__ double operator()(double left, double right) const { return left + right; }
};

constexpr int kListThreads = 1024;
constexpr int kGroupsInShared = 4096;  // whose cursors fit 16 KB of shared memory

// The sum of the values of all threads before this one, and of all; `scratch` is shared, kMaxWarps of them.
__device__ inline int sum_before(int value, int* scratch, int& total) {
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  int running = value;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const int below = __shfl_up_sync(kAllLanes, running, distance);
    if (lane >= distance) running += below;
  }
  __syncthreads();  // the scratch is free
  if (lane == kWarpSize - 1) scratch[warp] = running;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarpSize; ++i) {
    if (i < warp) before += scratch[i];
    total += scratch[i];
  }
  return before + running - value;
}

// One block: sorts the rows by the groups of their minima. Counts are integers, the same in any order; places are given
// in ascending order of rows, by one warp, so that lists are the same in every run.
__global__ void __launch_bounds__(kListThreads)
    list_rows_of_groups(const int* __restrict__ columns, Shape shape, Workspace workspace) {
  __shared__ int shared_cursors[kGroupsInShared];
  __shared__ int row_groups[kListThreads];
  __shared__ int scratch[kMaxWarps];
  const int rows = static_cast<int>(shape.rows);
  const int groups = static_cast<int>(shape.groups);
  const int length = static_cast<int>(shape.columns / shape.groups);
  int* const cursors = groups <= kGroupsInShared ? shared_cursors : workspace.cursors;
  for (int group = threadIdx.x; group < groups; group += kListThreads) cursors[group] = 0;
  __syncthreads();
  for (int row = threadIdx.x; row < rows; row += kListThreads) atomicAdd(&cursors[columns[row] / length], 1);
  __syncthreads();
  int done = 0;    // rows of the groups so far
  int listed = 0;  // groups so far that have rows
  for (int first = 0; first < groups; first += kListThreads) {
    const int group = first + threadIdx.x;
    const int count = group < groups ? cursors[group] : 0;
    int total;
    const int begin = done + sum_before(count, scratch, total);
    if (group < groups) workspace.begins[group] = cursors[group] = begin;
    done += total;
    const int place = listed + sum_before(count > 0 ? 1 : 0, scratch, total);
    if (count > 0) workspace.listed[place] = group;
    listed += total;
  }
  if (threadIdx.x == 0) workspace.begins[groups] = rows;
  if (threadIdx.x == 0) workspace.listed[groups] = listed;
  const unsigned lane = threadIdx.x % kWarpSize;
  for (int first = 0; first < rows; first += kListThreads) {
    __syncthreads();  // the groups of the rows before have been used; the cursors stand
    if (first + static_cast<int>(threadIdx.x) < rows) row_groups[threadIdx.x] = columns[first + threadIdx.x] / length;
    __syncthreads();
    if (threadIdx.x >= kWarpSize) continue;
    for (int start = 0; start < kListThreads && first + start < rows; start += kWarpSize) {
      const int row = first + start + static_cast<int>(lane);
      const int group = row < rows ? row_groups[start + lane] : -1;
      const unsigned same = __match_any_sync(kAllLanes, group);
      const int before = __popc(same & ((1u << lane) - 1));
      if (group >= 0) workspace.order[cursors[group] + before] = row;
      __syncwarp();  // every lane has read the cursor
      if (group >= 0 && before == 0) cursors[group] += __popc(same);
      __syncwarp();
    }
  }
}

constexpr int kProductThreads = 256;
constexpr int kZRows = 4;  // of the tile of z that a block computes
constexpr int kZColumns = 4;

// z (rows, columns / groups) of the group of each row's minimum. Grid (rows in their order / kZRows * columns of a
// group / kZColumns); the threads of a block share the features.
template <int kWidth>
__global__ void __launch_bounds__(kProductThreads)
    compute_groups_again(Winners winners, const int* __restrict__ order, Shape shape, double* __restrict__ z) {
  __shared__ double warp_sums[kZRows * kZColumns][kMaxWarps];
  __shared__ int rows[kZRows];
  __shared__ int groups[kZRows];
  const int64_t length = shape.columns / shape.groups;
  const int64_t tiles = (length + kZColumns - 1) / kZColumns;
  const int64_t items = (shape.rows + kZRows - 1) / kZRows * tiles;
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t first = item / tiles * kZRows;
    const int64_t first_column = item % tiles * kZColumns;  // within the group
    const int count = shape.rows - first < kZRows ? static_cast<int>(shape.rows - first) : kZRows;
    const int columns = length - first_column < kZColumns ? static_cast<int>(length - first_column) : kZColumns;
    __syncthreads();  // the rows before have been used
    if (threadIdx.x < count) {
      rows[threadIdx.x] = order[first + threadIdx.x];
      groups[threadIdx.x] = static_cast<int>(winners.columns[rows[threadIdx.x]] / length);
    }
    __syncthreads();
    for (int run = 0, next = 0; run < count; run = next) {  // neighbours of one group
      while (next < count && groups[next] == groups[run]) ++next;
      const int64_t column = groups[run] * length + first_column;
      double sums[kZRows][kZColumns] = {};
      for (int64_t feature = threadIdx.x * kWidth; feature < winners.features; feature += blockDim.x * kWidth) {
        float weights[kZColumns][kWidth] = {};
#pragma unroll
        for (int j = 0; j < kZColumns; ++j) {
          if (j < columns) load_vector<kWidth>(winners.weight + (column + j) * winners.features + feature, weights[j]);
        }
#pragma unroll
        for (int i = 0; i < kZRows; ++i) {
          if (i < run || i >= next) continue;
          float values[kWidth];
          load_vector<kWidth>(winners.x + rows[i] * winners.features + feature, values);
#pragma unroll
          for (int j = 0; j < kZColumns; ++j) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sums[i][j] += static_cast<double>(values[k]) * weights[j][k];
          }
        }
      }
      __syncthreads();  // the sums of the run before have been read
#pragma unroll
      for (int i = 0; i < kZRows * kZColumns; ++i) {
        const double sum = warp_reduce(sums[i / kZColumns][i % kZColumns], AddDoubles());
        if (lane == 0) warp_sums[i][warp] = sum;
      }
      __syncthreads();
      const int row = run + static_cast<int>(threadIdx.x) / kZColumns;
      const int within = threadIdx.x % kZColumns;
      if (row >= next || within >= columns) continue;
      double sum = winners.linear_bias[column + within];
      for (int i = 0; i < static_cast<int>(blockDim.x) / kWarpSize; ++i) sum += warp_sums[row * kZColumns + within][i];
      z[rows[row] * length + first_column + within] = sum;
    }
  }
}

// Grid (rows / 8), one warp a row: dz from z, and what the row adds to the gradient of its winner's weight.
__global__ void __launch_bounds__(kSumThreads)
    differentiate_groups(Winners winners, Workspace workspace, Shape shape, double eps) {
  const int64_t length = shape.columns / shape.groups;
  const double count = static_cast<double>(length);
  const int lane = threadIdx.x % kWarpSize;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kSumWarps;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kSumWarps + threadIdx.x / kWarpSize; row < shape.rows;
       row += step) {
    const double* z = workspace.z + row * length;
    const int64_t winner = winners.columns[row] % length;
    double sum = 0.0;
    for (int64_t i = lane; i < length; i += kWarpSize) sum += z[i];
    const double mean = __shfl_sync(kAllLanes, warp_reduce(sum, AddDoubles()), 0) / count;
    double m2 = 0.0;
    for (int64_t i = lane; i < length; i += kWarpSize) m2 += (z[i] - mean) * (z[i] - mean);
    const double variance = __shfl_sync(kAllLanes, warp_reduce(m2, AddDoubles()), 0) / count;
    const double rstd = 1.0 / sqrt(variance + eps);
    const double winner_xhat = (z[winner] - mean) * rstd;
    const double gradient = workspace.minima[row];
    const double scale = gradient * winners.norm_weight[winners.columns[row]] * rstd;
    for (int64_t i = lane; i < length; i += kWarpSize) {
      const double share = (1.0 + (z[i] - mean) * rstd * winner_xhat) / count;
      workspace.dz[row * length + i] = static_cast<float>(scale * ((i == winner ? 1.0 : 0.0) - share));
    }
    if (lane == 0) workspace.norm_weight[row] = static_cast<float>(gradient * winner_xhat);
  }
}

// Grid (columns / 8), one warp a column, its lanes along the list of the column's group.
__global__ void __launch_bounds__(kSumThreads)
    sum_lists(const int* __restrict__ columns, Workspace workspace, Shape shape, Gradients gradients) {
  const int64_t length = shape.columns / shape.groups;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kSumWarps + threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  if (column >= shape.columns) return;
  const int end = workspace.begins[column / length + 1];
  double shift = 0.0;
  double weight = 0.0;
  double bias = 0.0;
  for (int i = workspace.begins[column / length] + lane; i < end; i += kWarpSize) {
    const int64_t row = workspace.order[i];
    shift += workspace.dz[row * length + column % length];
    if (columns[row] != column) continue;
    weight += workspace.norm_weight[row];
    bias += workspace.minima[row];
  }
  shift = warp_reduce(shift, AddDoubles());
  weight = warp_reduce(weight, AddDoubles());
  bias = warp_reduce(bias, AddDoubles());
  if (lane != 0) return;
  if (gradients.linear_bias != nullptr) gradients.linear_bias[column] = static_cast<float>(shift);
  if (gradients.norm_weight != nullptr) gradients.norm_weight[column] = static_cast<float>(weight);
  if (gradients.norm_bias != nullptr) gradients.norm_bias[column] = static_cast<float>(bias);
}

void launch_groups_again(const Winners& winners, const Workspace& workspace, const Shape& shape, cudaStream_t stream) {
  const int64_t features = winners.features;
  const bool by_four = reads_as_vectors(winners.x, features) && reads_as_vectors(winners.weight, features);
  const unsigned threads = threads_for(by_four ? features : 4 * features, kProductThreads);
  const unsigned blocks = grid_for(ceil_div(shape.rows, kZRows) * ceil_div(shape.columns / shape.groups, kZColumns));
  if (by_four) {
    compute_groups_again<4><<<blocks, threads, 0, stream>>>(winners, workspace.order, shape, workspace.z);
  } else {
    compute_groups_again<1><<<blocks, threads, 0, stream>>>(winners, workspace.order, shape, workspace.z);
  }
}

LaunchStatus launch_group_gradients(const Winners& winners, const Shape& shape, double eps, const Workspace& workspace,
                                    const Gradients& gradients, int device, void* stream_handle) {
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  list_rows_of_groups<<<1, kListThreads, 0, stream>>>(winners.columns, shape, workspace);
  LaunchStatus status = launched("list_rows_of_groups");
  if (status.kernel == nullptr && shape.rows > 0) {
    launch_groups_again(winners, workspace, shape, stream);
    status = launched("compute_groups_again");
  }
  if (status.kernel == nullptr && shape.rows > 0) {
    differentiate_groups<<<grid_for(ceil_div(shape.rows, kSumWarps)), kSumThreads, 0, stream>>>(winners, workspace,
                                                                                                shape, eps);
    status = launched("differentiate_groups");
  }
  const bool wants_columns =
      gradients.linear_bias != nullptr || gradients.norm_weight != nullptr || gradients.norm_bias != nullptr;
  if (status.kernel != nullptr || !wants_columns) return status;
  sum_lists<<<grid_for(ceil_div(shape.columns, kSumWarps)), kSumThreads, 0, stream>>>(winners.columns, workspace, shape,
                                                                                      gradients);
  return launched("sum_lists");
}
