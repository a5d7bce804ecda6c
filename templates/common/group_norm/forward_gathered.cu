// Forward behind something that has gathered the moments of what is normalised, each channel of a sample in `parts`:
// those of a group are merged in order, and then every row is normalised, one block a tile.

LaunchStatus launch_forward_gathered(const Element* x, {% if shifted %}const Shift& shift, {% endif %}const float* moments, int64_t parts,
                                     const Weight* weight, const Weight* bias, const Shape& shape, float eps,
                                     Element* y, float* mean, float* rstd, int device, void* stream_handle) {
  if (shape.samples * shape.channels * shape.spatial == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const LaunchStatus status = launch_merge_moments(reinterpret_cast<const Moments*>(moments), shape,
                                                   shape.channels / shape.groups * parts, eps, mean, rstd, stream);
  if (status.kernel != nullptr) return status;
  return launch_normalise(x, {% if shifted %}shift, {% endif %}weight, bias, mean, rstd, shape, y, stream);
}
