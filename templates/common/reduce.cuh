// Reductions in a fixed order: the same bits in every run. A type has from_lane_above(value, offset), its shuffle.

__device__ inline double from_lane_above(double value, int offset) {
  return __shfl_down_sync(kAllLanes, value, offset);
}

struct Add {
  template <typename Value>
  __device__ Value operator()(const Value& left, const Value& right) const { return left + right; }
};

// Over a warp; complete in lane 0 only.
template <typename Value, typename Combine>
__device__ inline Value warp_reduce(Value value, Combine combine) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value = combine(value, from_lane_above(value, offset));
  return value;
}
