// Chooses kernels by the shape, in each direction: see plan.cuh. Whatever the forward runs writes what the mean's float
// lacks behind rstd, or zeros: the backward may run something else.

int64_t forward_scratch(const Shape& shape) {
  const int64_t of_parts = in_parts::forward_scratch(shape);
  const int64_t of_words = streaming_words(shape);
  return of_parts > of_words ? of_parts : of_words;
}

LaunchStatus launch_forward(const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Weight* weight, const Weight* bias,
                            const Shape& shape, float eps, Element* y, float* mean, float* rstd, float* scratch,
                            int device, void* stream) {
  const bool is_aligned = is_vector_aligned(x) && is_vector_aligned(y);
  const Choice choice = choice_of(shape, kForwardSmall, is_aligned, kForwardWaiting, kForwardShared, device);
  const CurrentDevice current(device);
  const cudaStream_t cuda_stream = static_cast<cudaStream_t>(stream);
  if (choice.plan == Plan::kSmall) {
    return held::launch_forward(x, weight, bias, shape, eps, y, mean, rstd, cuda_stream);
  }
  if (choice.plan == Plan::kStreamed && is_compiled(streamed_forward::stream_forward)) {
    return launch_streamed_forward(x, weight, bias, shape, eps, y, mean, rstd, reinterpret_cast<ulonglong2*>(scratch),
                                   choice.blocks, cuda_stream);
  }
  const int64_t groups = shape.samples * shape.groups;
  if (groups > 0 && cudaMemsetAsync(rstd + groups, 0, groups * sizeof(float), cuda_stream) != cudaSuccess) {
    return launched("clearing statistics");
  }
  return in_parts::launch_forward(x, {% if shifted %}shift, {% endif %}weight, bias, shape, eps, y, mean, rstd, scratch, device, stream);
}

int64_t backward_scratch(const Shape& shape) {
  const int64_t of_whole = whole::backward_scratch(shape);
  const int64_t of_parts = in_parts::backward_scratch(shape);
  const int64_t of_stream = streaming_words(shape) + streaming_sums(shape);
  const int64_t larger = of_whole > of_parts ? of_whole : of_parts;
  return larger > of_stream ? larger : of_stream;
}

LaunchStatus launch_backward(const Element* dy, const Element* x, {% if shifted %}const Shift& shift, {% endif %}const Weight* weight,
                             const float* mean, const float* rstd, const Shape& shape, const Gradients& gradients,
                             float* scratch, int device, void* stream) {
  const bool is_aligned = is_vector_aligned(x) && is_vector_aligned(dy) && is_vector_aligned(gradients.x);
  const Choice choice = choice_of(shape, kBackwardSmall, is_aligned, kBackwardWaiting, kBackwardShared, device);
  if (choice.plan == Plan::kStreamed && gradients.x != nullptr && is_compiled(streamed_backward::stream_backward)) {
    const CurrentDevice current(device);
    RowSums* sums = reinterpret_cast<RowSums*>(scratch + streaming_words(shape));
    return launch_streamed_backward(dy, x, weight, mean, rstd, shape, gradients,
                                    reinterpret_cast<ulonglong2*>(scratch), sums, choice.blocks,
                                    static_cast<cudaStream_t>(stream));
  }
  const auto launch = choice.plan == Plan::kSmall ? whole::launch_backward : in_parts::launch_backward;
  return launch(dy, x, {% if shifted %}shift, {% endif %}weight, mean, rstd, shape, gradients, scratch, device, stream);
}
