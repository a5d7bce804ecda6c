// A block's rows, normalised in registers and searched for their minima: nothing is written.

__device__ inline float z_of(float product, float linear_bias) {
  return kAddLinearBias ? product + linear_bias : product;
}

{% if statistics == "pass" %}
// Where a warp holds a group: a team finds its statistics in registers, so that the product is read once.
template <int kWidth>
struct ShortGroups {
  Normalisation source;
  Teams teams;

  __device__ void operator()(int64_t first_row, Lowest (&lowest)[kRowsPerBlock]) const {
    for (int64_t strip = 0; strip < teams.strips; ++strip) {
      const Place place = place_of(source.shape, teams, strip);
      float weight[kValues];
      float bias[kValues];
      float linear_bias[kValues] = {};
      load_share<kWidth>(source.weight + place.column, place, weight);
      load_share<kWidth>(source.bias + place.column, place, bias);
      if constexpr (kAddLinearBias) load_share<kWidth>(source.linear_bias + place.column, place, linear_bias);
#pragma unroll
      for (int first = 0; first < kRowsPerBlock; first += kRowsInFlight) {
        float values[kRowsInFlight][kValues];
#pragma unroll
        for (int i = 0; i < kRowsInFlight; ++i) {
          const int64_t row = first_row + first + i;
          if (row >= source.shape.rows) break;
          load_share<kWidth>(source.product + row * source.shape.columns + place.column, place, values[i]);
        }
#pragma unroll
        for (int i = 0; i < kRowsInFlight; ++i) {
          if (first_row + first + i >= source.shape.rows) break;
#pragma unroll
          for (int j = 0; j < kValues; ++j) values[i][j] = z_of(values[i][j], linear_bias[j]);
          float mean;
          float rstd;
          normalise_share<kWidth>(values[i], weight, bias, place, source.eps, mean, rstd);
#pragma unroll
          for (int j = 0; j < kValues; ++j) {
            const int column = place.column + position_of<kWidth>(place, j);
            if (holds<kWidth>(place, j)) consider(values[i][j], column, lowest[first + i]);
          }
        }
      }
    }
  }
};

{% endif %}
struct GroupStatistics {
  float mean;
  float rstd;
};

// Groups of a block's rows whose statistics are in shared memory at a time: 32 KB.
constexpr int kGroupsAtOnce = 4096 / kRowsPerBlock;

{% if statistics == "epilogue" %}
// From the moments of the parts of groups, one thread a group.
__device__ inline void block_statistics(const Normalisation& source, int64_t first_row, int64_t first_group, int groups,
                                        GroupStatistics (&statistics)[kRowsPerBlock][kGroupsAtOnce]) {
  const float length = static_cast<float>(source.shape.columns / source.shape.groups);
  const PartMoments* parts = reinterpret_cast<const PartMoments*>(source.moments);
  for (int item = threadIdx.x; item < kRowsPerBlock * groups; item += blockDim.x) {
    const int64_t row = first_row + item / groups;
    if (row >= source.shape.rows) break;
    const PartMoments* row_parts = parts + row * parts_of_row(source.shape);
    const Moments moments = moments_of_group(row_parts, source.shape, first_group + item % groups);
    statistics[item / groups][item % groups] = {moments.mean, reciprocal_deviation(moments.m2, length, source.eps)};
  }
}
{% else %}
// The moments of a row's z from `first` on, in lane 0 of the warp.
__device__ inline Moments warp_moments(const Normalisation& source, int64_t row, int64_t first, int64_t length) {
  const float* product = source.product + row * source.shape.columns + first;
  const float* linear_bias = source.linear_bias + first;
  const int lane = threadIdx.x % kWarpSize;
  const int64_t tiled = length / (kWarpSize * kBatch) * (kWarpSize * kBatch);
  Moments running = {0.0f, 0.0f, 0.0f};
  for (int64_t start = lane; start < tiled; start += kWarpSize * kBatch) {
    float values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t position = start + i * kWarpSize;
      values[i] = z_of(product[position], kAddLinearBias ? linear_bias[position] : 0.0f);
    }
    running = MergeMoments()(running, moments_of(values));
  }
  for (int64_t i = tiled + lane; i < length; i += kWarpSize) {
    const float value = z_of(product[i], kAddLinearBias ? linear_bias[i] : 0.0f);
    running = MergeMoments()(running, Moments{1.0f, value, 0.0f});
  }
  return warp_reduce(running, MergeMoments());
}

// From the product, one warp a group.
__device__ inline void block_statistics(const Normalisation& source, int64_t first_row, int64_t first_group, int groups,
                                        GroupStatistics (&statistics)[kRowsPerBlock][kGroupsAtOnce]) {
  const int64_t length = source.shape.columns / source.shape.groups;
  const int warps = blockDim.x / kWarpSize;
  for (int item = threadIdx.x / kWarpSize; item < kRowsPerBlock * groups; item += warps) {
    const int64_t row = first_row + item / groups;
    if (row >= source.shape.rows) break;
    const Moments moments = warp_moments(source, row, (first_group + item % groups) * length, length);
    if (threadIdx.x % kWarpSize != 0) continue;
    statistics[item / groups][item % groups] = {
        moments.mean, reciprocal_deviation(moments.m2, static_cast<float>(length), source.eps)};
  }
}
{% endif %}

// Groups of any length, their statistics in shared memory before their columns are searched.
template <int kWidth>
struct GroupsOfAnyLength {
  // Rows loaded together: as many floats as a thread of a team holds.
  static constexpr int kWanted = kRowsInFlight * kValues / 4;
  static constexpr int kInFlight = kRowsPerBlock < kWanted ? kRowsPerBlock : kWanted;

  Normalisation source;

  __device__ void operator()(int64_t first_row, Lowest (&lowest)[kRowsPerBlock]) const {
    __shared__ GroupStatistics statistics[kRowsPerBlock][kGroupsAtOnce];
    const int64_t length = source.shape.columns / source.shape.groups;
    for (int64_t first_group = 0; first_group < source.shape.groups; first_group += kGroupsAtOnce) {
      const int64_t left = source.shape.groups - first_group;
      const int groups = left < kGroupsAtOnce ? static_cast<int>(left) : kGroupsAtOnce;
      __syncthreads();  // those of the groups before have been used
      block_statistics(source, first_row, first_group, groups, statistics);
      __syncthreads();
      const int64_t end = (first_group + groups) * length;
      for (int64_t column = first_group * length + threadIdx.x * kWidth; column < end; column += blockDim.x * kWidth) {
        const int group = static_cast<int>(column / length - first_group);
        search_columns(statistics, first_row, static_cast<int>(column), group, lowest);
      }
    }
  }

 private:
  // kWidth columns of one group, in all rows.
  __device__ void search_columns(const GroupStatistics (&statistics)[kRowsPerBlock][kGroupsAtOnce], int64_t first_row,
                                 int column, int group, Lowest (&lowest)[kRowsPerBlock]) const {
    float weight[kWidth];
    float bias[kWidth];
    float linear_bias[kWidth] = {};
    load_vector<kWidth>(source.weight + column, weight);
    load_vector<kWidth>(source.bias + column, bias);
    if constexpr (kAddLinearBias) load_vector<kWidth>(source.linear_bias + column, linear_bias);
#pragma unroll
    for (int first = 0; first < kRowsPerBlock; first += kInFlight) {
      float values[kInFlight][kWidth];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int64_t row = first_row + first + i;
        if (row >= source.shape.rows) break;
        load_vector<kWidth>(source.product + row * source.shape.columns + column, values[i]);
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (first_row + first + i >= source.shape.rows) break;
        const GroupStatistics of_group = statistics[first + i][group];
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const float deviation = z_of(values[i][j], linear_bias[j]) - of_group.mean;
          consider(deviation * (of_group.rstd * weight[j]) + bias[j], column + j, lowest[first + i]);
        }
      }
    }
  }
};

// Keeps what backward starts from: the column of each row's minimum.
__device__ inline void keep_winners(const Lowest (&found)[kRowsPerBlock], int64_t first_row, int64_t rows,
                                    int* winners) {
  const int64_t row = first_row + threadIdx.x;
  if (winners != nullptr && threadIdx.x < kRowsPerBlock && row < rows) winners[row] = found[threadIdx.x].column;
}

// Runs a launch with the way of searching that the groups and the alignment of the source allow.
template <typename Launch>
void with_search(const Normalisation& source, const Launch& launch) {
  const int64_t length = source.shape.columns / source.shape.groups;
  const bool by_four = reads_as_vectors(source.product, length) && reads_as_vectors(source.weight, length) &&
                       reads_as_vectors(source.bias, length) &&
                       (!kAddLinearBias || reads_as_vectors(source.linear_bias, length));
{% if statistics == "pass" %}
  if (fits_a_team(source.shape)) {
    const Teams teams = teams_of(source.shape);
    if (by_four) return launch(ShortGroups<4>{source, teams}, teams.threads);
    return launch(ShortGroups<1>{source, teams}, teams.threads);
  }
{% endif %}
  const int threads = static_cast<int>(threads_for(source.shape.columns, kThreads));
  if (by_four) return launch(GroupsOfAnyLength<4>{source}, threads);
  return launch(GroupsOfAnyLength<1>{source}, threads);
}
