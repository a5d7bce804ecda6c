// Short groups: a team of 1 to 32 neighbouring lanes owns a group's columns and walks down rows, so that what belongs
// to the columns is loaded, or summed, once and not once a row. A lane holds kValues of the columns, in vectors that
// interleave with those of its team.

// How teams cover the columns: a strip is what the teams of one block own.
struct Teams {
  int lanes;  // of a team; a power of two
  int threads;
  int64_t strips;
};

inline bool fits_a_team(const Shape& shape) {
  return shape.columns / shape.groups <= static_cast<int64_t>(kWarpSize) * kValues;
}

inline Teams teams_of(const Shape& shape) {
  const int64_t length = shape.columns / shape.groups;
  int lanes = 1;
  while (static_cast<int64_t>(lanes) * kValues < length) lanes *= 2;
  const int64_t wanted = ceil_div(shape.groups * lanes, kWarpSize) * kWarpSize;
  const int threads = static_cast<int>(wanted < kThreads ? wanted : kThreads);
  return {lanes, threads, ceil_div(shape.groups, threads / lanes)};
}

// This thread's place. A lane beyond the last group has a length of 0: it holds nothing, but takes part in shuffles.
struct Place {
  int64_t chunk;
  int group;
  int column;      // the group's first
  int length;      // of the group
  int lane;        // within the team
  int lanes;
};

__device__ inline Place place_of(const Shape& shape, const Teams& teams, int64_t block) {
  const int team = threadIdx.x / teams.lanes;
  const int64_t group = block % teams.strips * (blockDim.x / teams.lanes) + team;
  const int64_t length = shape.columns / shape.groups;
  const bool owns = group < shape.groups;
  return {block / teams.strips,
          static_cast<int>(group),
          owns ? static_cast<int>(group * length) : 0,
          owns ? static_cast<int>(length) : 0,
          static_cast<int>(threadIdx.x) % teams.lanes,
          teams.lanes};
}

// Where in its group value `index` of this lane lies; held only where that is below the group's length.
template <int kWidth>
__device__ inline int position_of(const Place& place, int index) {
  return (index / kWidth * place.lanes + place.lane) * kWidth + index % kWidth;
}

template <int kWidth>
__device__ inline bool holds(const Place& place, int index) {
  return position_of<kWidth>(place, index) < place.length;
}

// values = this lane's share of group[0 .. length), 0 where it holds none.
template <int kWidth>
__device__ inline void load_share(const float* group, const Place& place, float (&values)[kValues]) {
#pragma unroll
  for (int index = 0; index < kValues; index += kWidth) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[index + i] = 0.0f;
    if (holds<kWidth>(place, index)) load_vector<kWidth>(group + position_of<kWidth>(place, index), values + index);
  }
}
