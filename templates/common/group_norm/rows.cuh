// A row is one channel of one sample: `spatial` neighbouring elements. Row r belongs to channel r % channels and to
// group r / channels_per_group, counted over the samples. What is normalised of an element x is {{ "activate(x)" if activated else "x" }}.

// Rows shorter than this are not worth a block or a warp: their elements are spread over threads instead.
constexpr int64_t kShortRow = 64;

// What the gradients need of one row: sum(dy) and sum(dy * xhat), xhat = ({{ "activate(x)" if activated else "x" }} - mean) * rstd.
struct RowSums {
  float dy;
  float dy_xhat;
{% if bounds_dx %}
  float largest;  // |dy|; NaN if there is one
{% endif %}
};

{% if bounds_dx %}
__device__ inline float larger(float left, float right) { return left >= right || isnan(left) ? left : right; }

{% endif %}
struct AddRowSums {
  __device__ RowSums operator()(const RowSums& left, const RowSums& right) const {
    return {left.dy + right.dy, left.dy_xhat + right.dy_xhat{{ ", larger(left.largest, right.largest)" if bounds_dx else "" }}};
  }
};

__device__ inline RowSums from_lane_above(const RowSums& value, int offset) {
  return {__shfl_down_sync(kAllLanes, value.dy, offset), __shfl_down_sync(kAllLanes, value.dy_xhat, offset){% if bounds_dx %},
          __shfl_down_sync(kAllLanes, value.largest, offset){% endif %}};
}

// The sums over `length` elements of a row, in every thread of the block. A tile is summed by itself before it is
// added, so that rounding grows with the number of tiles and not of elements.
template <int kWidth>
__device__ inline RowSums block_row_sums(const Element* dy, const Element* x, int64_t length,{{ " const Activate& activate," if activated else "" }}
                                         float mean, float rstd, RowSums* scratch) {
  RowSums running = {0.0f, 0.0f{{ ", 0.0f" if bounds_dx else "" }}};
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float gradients[kBatch];
    float values[kBatch];
    load_tile<kWidth>(dy + start, gradients);
    load_tile<kWidth>(x + start, values);
    RowSums tile = {0.0f, 0.0f{{ ", 0.0f" if bounds_dx else "" }}};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      tile.dy += gradients[i];
{% if bounds_dx %}
      tile.largest = fmaxf(tile.largest, fabsf(gradients[i]));
{% endif %}
      tile.dy_xhat += gradients[i] * (({{ "activate(values[i])" if activated else "values[i]" }} - mean) * rstd);
    }
    running = AddRowSums()(running, tile);
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    const float gradient = as_float(dy[i]);
    running = AddRowSums()(running, RowSums{gradient, gradient * (({{ "activate(as_float(x[i]))" if activated else "as_float(x[i])" }} - mean) * rstd){{ ", fabsf(gradient)" if bounds_dx else "" }}});
  }
  return block_reduce(running, RowSums{0.0f, 0.0f{{ ", 0.0f" if bounds_dx else "" }}}, scratch, AddRowSums());
}

// The same by one thread.
__device__ inline RowSums thread_row_sums(const Element* dy, const Element* x, int64_t length,{{ " const Activate& activate," if activated else "" }}
                                          float mean, float rstd) {
  RowSums running = {0.0f, 0.0f{{ ", 0.0f" if bounds_dx else "" }}};
  for (int64_t i = 0; i < length; ++i) {
    const float gradient = as_float(dy[i]);
    running = AddRowSums()(running, RowSums{gradient, gradient * (({{ "activate(as_float(x[i]))" if activated else "as_float(x[i])" }} - mean) * rstd){{ ", fabsf(gradient)" if bounds_dx else "" }}});
  }
  return running;
}

struct AddDoubles {
  __device__ double operator()(double left, double right) const { return left + right; }
};

// y = ({{ "activate(x)" if activated else "x" }} - mean) * rstd * weight + bias
struct Normalise {
{% if activated %}
  Activate activate;
{% endif %}
  float mean;
  float scale;  // rstd * weight
  float bias;
  __device__ float operator()(float x) const { return ({{ "activate(x)" if activated else "x" }} - mean) * scale + bias; }
};
