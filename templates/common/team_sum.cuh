// The sum over the team, in every lane of it: a butterfly, so all lanes add the same pairs. All lanes of the warp call.
__device__ inline float team_sum(float value, int lanes) {
#pragma unroll
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    if (offset < lanes) value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}
