// Forward: a group is cut into parts, one block a part, so that even one long group fills the device;
// its parts' moments are merged in order, and then every row is normalised, one block a tile.

LaunchStatus launch_forward(const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Weight* weight, const Weight* bias,
                            const Shape& shape, float eps, Element* y, float* mean, float* rstd, float* scratch,
                            int device, void* stream_handle) {
  if (shape.samples * shape.channels * shape.spatial == 0) return {nullptr, nullptr};
  const CurrentDevice current(device);
  const cudaStream_t stream = static_cast<cudaStream_t>(stream_handle);
  const LaunchStatus status =
      launch_statistics(x, {% if shifted %}shift, {% endif %}shape, eps, mean, rstd, reinterpret_cast<Moments*>(scratch), stream);
  if (status.kernel != nullptr) return status;
  return launch_normalise(x, {% if shifted %}shift, {% endif %}weight, bias, mean, rstd, shape, y, stream);
}
