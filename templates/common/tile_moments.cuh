// The moments of this thread's share of {{ 'map(data[0 .. length))' if activated else 'data[0 .. length)' }}.
template <int kWidth, typename T{% if activated %}, typename Map{% endif %}>
__device__ inline Moments thread_moments(const T* data, int64_t length{% if activated %}, Map map{% endif %}) {
  const MergeMoments merge;
  Moments running = {0.0f, 0.0f, 0.0f};
  const int64_t tiled = tiled_length(length);
  for (int64_t start = 0; start < tiled; start += static_cast<int64_t>(blockDim.x) * kBatch) {
    float values[kBatch];
    load_tile<kWidth>(data + start, values);
{% if activated %}
#pragma unroll
    for (int i = 0; i < kBatch; ++i) values[i] = map(values[i]);
{% endif %}
    running = merge(running, moments_of(values));
  }
  for (int64_t i = tiled + threadIdx.x; i < length; i += blockDim.x) {
    running = merge(running, Moments{1.0f, {{ "map(as_float(data[i]))" if activated else "as_float(data[i])" }}, 0.0f});
  }
  return running;
}
