// Where the sums of minima and bias lie. Rows run along memory where the bias's last dimension is 1, as in the shape
// (1, columns, rows, 1); entries do otherwise.

__device__ inline int64_t bias_offset(const Broadcast& broadcast, int64_t outer, int64_t row, int64_t inner) {
  const int64_t rows = broadcast.bias_row != 0 ? broadcast.rows : 1;
  return outer * rows * broadcast.inner + row * broadcast.bias_row + inner;
}

// Splits an entry into outer and inner, mostly without a division.
struct Entry {
  int64_t outer;
  int64_t inner;
};

__device__ inline Entry entry_of(int64_t entry, int64_t outer, int64_t inner) {
  if (outer == 1) return {0, entry};
  if (inner == 1) return {entry, 0};
  return {entry / inner, entry % inner};
}

// values[0 .. kWidth) = the bias of one entry in rows from `row` on; inner is 1.
template <int kWidth>
__device__ inline void load_row_biases(const Broadcast& broadcast, int64_t entry, int64_t row, float* values) {
  if (broadcast.bias_row != 0) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] = broadcast.bias[bias_offset(broadcast, entry, row + i, 0)];
    return;
  }
  const float value = broadcast.bias[entry];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] = value;
}

// Whether y can be written four floats at a time, rows in runs of `rows_together`.
inline bool adds_by_four(const Broadcast& broadcast, const float* y, int rows_together) {
  if (broadcast.inner == 1) return rows_together % 4 == 0 && reads_as_vectors(y, broadcast.rows);
  return reads_as_vectors(y, broadcast.inner) && reads_as_vectors(broadcast.bias, broadcast.inner);
}
