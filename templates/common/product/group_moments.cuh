// An epilogue that leaves the moments of row groups behind, so that what follows need not read the product for them.
// A group may be shorter than a tile, longer, or lie across several: each tile keeps the moments of its own part of
// every group that it meets, and whoever wants a group's merges its parts from left to right.

// Of the part of a row's group that lies in one tile; its count follows from the places of both.
struct PartMoments {
  float mean;
  float m2;  // sum of squared deviations
};

// Going along a row, each part is in the next group, or the next tile, or both: group + tile numbers them in order.
__host__ __device__ inline int64_t parts_of_row(const Shape& shape) {
  return shape.groups + (shape.columns + kBlockN - 1) / kBlockN - 1;
}

__device__ inline Moments moments_of_group(const PartMoments* row_parts, const Shape& shape, int64_t group) {
  const int64_t length = shape.columns / shape.groups;
  const int64_t begin = group * length;
  const int64_t end = begin + length;
  Moments running = {0.0f, 0.0f, 0.0f};
  for (int64_t tile = begin / kBlockN; tile * kBlockN < end; ++tile) {
    const int64_t from = begin > tile * kBlockN ? begin : tile * kBlockN;
    const int64_t to = end < (tile + 1) * kBlockN ? end : (tile + 1) * kBlockN;
    const PartMoments part = row_parts[group + tile];
    running = MergeMoments()(running, Moments{static_cast<float>(to - from), part.mean, part.m2});
  }
  return running;
}

// Finishes sums as `finish` does, and keeps the moments of what is stored.
template <typename Finish>
struct KeepGroupMoments {
  static constexpr bool kSeesTile = true;
  static constexpr int kSliceRows = 2048 / kBlockN;  // of the tile, in shared memory at a time
  static constexpr int kLanes = 8;                   // neighbouring ones, which take one part together

  Finish finish;
  Shape shape;         // of the target
  PartMoments* parts;  // (rows, parts_of_row)

  __device__ float operator()(float sum, int64_t m, int64_t n) const { return finish(sum, m, n); }

  __device__ void see_tile(const float* target, const TilePlace& place) const {
    __shared__ float slice[kSliceRows][kBlockN];
    const int64_t length = shape.columns / shape.groups;
    const int64_t left = shape.columns - place.first_n;
    const int columns = left < kBlockN ? static_cast<int>(left) : kBlockN;
    const int64_t first_group = place.first_n / length;
    const int groups = static_cast<int>((place.first_n + columns - 1) / length - first_group) + 1;
    for (int first_row = 0; first_row < kBlockM && place.first_m + first_row < shape.rows; first_row += kSliceRows) {
      __syncthreads();  // the tile is stored; the slice before has been read
      for (int i = threadIdx.x; i < kSliceRows * kBlockN; i += kTileThreads) {
        const int64_t m = place.first_m + first_row + i / kBlockN;
        if (m < shape.rows && i % kBlockN < columns) {
          slice[i / kBlockN][i % kBlockN] = target[m * shape.columns + place.first_n + i % kBlockN];
        }
      }
      __syncthreads();
      for (int first = 0; first < kSliceRows * groups; first += kTileThreads / kLanes) {
        const int item = first + static_cast<int>(threadIdx.x) / kLanes;
        const int row = item / groups;
        const int64_t m = place.first_m + first_row + row;
        const int64_t group = first_group + item % groups;
        const bool owns = row < kSliceRows && m < shape.rows;
        const int64_t from = group * length - place.first_n;
        const int begin = from > 0 ? static_cast<int>(from) : 0;
        const int end = from + length < columns ? static_cast<int>(from + length) : columns;
        const PartMoments part = part_moments(slice[owns ? row : 0], begin, owns ? end : begin);
        if (owns && threadIdx.x % kLanes == 0) parts[m * parts_of_row(shape) + group + place.first_n / kBlockN] = part;
      }
    }
  }

 private:
  // By two passes over values[begin .. end), relative to the first, so that those of equal values are exact. All lanes
  // of a warp call; one that owns nothing has no values.
  static __device__ PartMoments part_moments(const float* values, int begin, int end) {
    const float count = static_cast<float>(end - begin);
    const float first = begin < end ? values[begin] : 0.0f;
    float sum = 0.0f;
    for (int i = begin + static_cast<int>(threadIdx.x) % kLanes; i < end; i += kLanes) sum += values[i] - first;
    const float beyond_first = team_sum(sum, kLanes) / count;
    float m2 = 0.0f;
    for (int i = begin + static_cast<int>(threadIdx.x) % kLanes; i < end; i += kLanes) {
      const float deviation = values[i] - first - beyond_first;
      m2 += deviation * deviation;
    }
    return {first + beyond_first, team_sum(m2, kLanes)};
  }
};
