// Where channels are activated each in its own way, a group is so many rows.

// The moments of what is normalised of the group that begins at `x`, in every thread of the block.
template <int kGroupWidth, int kRowWidth>
__device__ inline Moments moments_of_group(const Element* x, int64_t group_length, const Shift& shift,
                                           const Shape& shape, int64_t group, Moments* scratch) {
  const MergeMoments merge;
  const int64_t channels_per_group = shape.channels / shape.groups;
  const int64_t first_channel = group % shape.groups * channels_per_group;
  Moments running = {0.0f, 0.0f, 0.0f};
  if (shape.spatial < kShortRow) {
    for (int64_t i = threadIdx.x; i < group_length; i += blockDim.x) {
{% if activated %}
      const Activate activate = activate_of({% if shifted %}shift, {% endif %}first_channel + i / shape.spatial);
{% endif %}
      running = merge(running, Moments{1.0f, {{ "activate(as_float(x[i]))" if activated else "as_float(x[i])" }}, 0.0f});
    }
  } else {
    for (int64_t member = 0; member < channels_per_group; ++member) {
{% if activated %}
      const Activate activate = activate_of({% if shifted %}shift, {% endif %}first_channel + member);
{% endif %}
      running = merge(running, thread_moments<kRowWidth>(x + member * shape.spatial, shape.spatial, activate));
    }
  }
  return block_reduce(running, Moments{0.0f, 0.0f, 0.0f}, scratch, merge);
}
