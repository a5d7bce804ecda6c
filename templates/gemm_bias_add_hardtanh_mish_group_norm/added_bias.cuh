// The added bias of one row; its column stride is 1 or 0.
template <int kWidth>
__device__ inline void load_added_bias(const Biases& biases, int64_t row, const Place& place,
                                       float (&values)[kValues]) {
  const float* source = biases.added + row * biases.row_stride;
  if (biases.column_stride != 0) {
    load_share<kWidth>(source + place.column, place, values);
  } else {
#pragma unroll
    for (int index = 0; index < kValues; ++index) values[index] = *source;
  }
}
