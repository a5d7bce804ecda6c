// The moments of {{ 'map(data[0 .. length))' if activated else 'data[0 .. length)' }}, in every thread of the block.
template <int kWidth, typename T{% if activated %}, typename Map{% endif %}>
__device__ inline Moments block_moments(const T* data, int64_t length, Moments* scratch{% if activated %}, Map map{% endif %}) {
  return block_reduce(thread_moments<kWidth>(data, length{% if activated %}, map{% endif %}), Moments{0.0f, 0.0f, 0.0f}, scratch, MergeMoments());
}
