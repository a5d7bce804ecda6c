// The least of a row as torch.min finds it: NaN before all numbers, then the lower value, then the lower column.

struct Lowest {
  unsigned order;  // of the value: as unsigned numbers these lie as the values do, NaN first
  int column;
};

constexpr unsigned kOrderOfNaN = 0;

__device__ inline Lowest no_value() { return {0xffffffffu, 0x7fffffff}; }

// Adding 0 makes -0 the 0 that it equals.
__device__ inline unsigned order_of(float value) {
  const unsigned bits = __float_as_uint(value + 0.0f);
  return isnan(value) ? kOrderOfNaN : bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

__device__ inline float value_of(unsigned order) {
  if (order == kOrderOfNaN) return __uint_as_float(0x7fc00000u);
  return __uint_as_float(order ^ (order >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

// Takes the value in one column into account. A thread meets columns in ascending order: the first of equals stays.
__device__ inline void consider(float value, int column, Lowest& lowest) {
  const unsigned order = order_of(value);
  if (order < lowest.order) lowest = {order, column};
}

struct LowerOf {
  __device__ Lowest operator()(const Lowest& left, const Lowest& right) const {
    const bool takes_right = right.order < left.order || (right.order == left.order && right.column < left.column);
    return takes_right ? right : left;
  }
};

__device__ inline Lowest from_lane_above(const Lowest& value, int offset) {
  return {__shfl_down_sync(kAllLanes, value.order, offset), __shfl_down_sync(kAllLanes, value.column, offset)};
}

// The lowest of each of a block's rows over all of its threads; `found` is shared, and complete after the call.
__device__ inline void find_lowest(const Lowest (&lowest)[kRowsPerBlock], Lowest (&found)[kRowsPerBlock]) {
  __shared__ Lowest of_warps[kRowsPerBlock][kMaxWarps];
  const int lane = threadIdx.x % kWarpSize;
  const int warp = threadIdx.x / kWarpSize;
  const int warps = blockDim.x / kWarpSize;
#pragma unroll
  for (int i = 0; i < kRowsPerBlock; ++i) {
    const Lowest of_warp = warp_reduce(lowest[i], LowerOf());
    if (lane == 0) of_warps[i][warp] = of_warp;
  }
  __syncthreads();
  for (int i = warp; i < kRowsPerBlock; i += warps) {
    const Lowest of_row = warp_reduce(lane < warps ? of_warps[i][lane] : no_value(), LowerOf());
    if (lane == 0) found[i] = of_row;
  }
  __syncthreads();
}
