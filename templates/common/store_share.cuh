template <int kWidth>
__device__ inline void store_share(float* group, const Place& place, const float (&values)[kValues]) {
#pragma unroll
  for (int index = 0; index < kValues; index += kWidth) {
    if (holds<kWidth>(place, index)) store_vector<kWidth>(group + position_of<kWidth>(place, index), values + index);
  }
}
