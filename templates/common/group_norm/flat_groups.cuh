// Where all channels are activated alike, a group is one stretch of memory.

// The moments of what is normalised of the group that begins at `x`, in every thread of the block.
template <int kGroupWidth, int kRowWidth>
__device__ inline Moments moments_of_group(const Element* x, int64_t group_length, {% if shifted %}const Shift& shift, {% endif %}const Shape&,
                                           int64_t /*group*/, Moments* scratch) {
  return block_moments<kGroupWidth>(x, group_length, scratch{% if activated %}, activate_of({% if shifted %}shift, {% endif %}0){% endif %});
}
