namespace OP_NAMESPACE {

// Returns y, like x.
Tensor forward(const Tensor& x) {
  check_float_input(x, x, "x");
  Tensor y = torch::stable::empty_like(x);
  check_launch(launch_stage(input_floats(x), output_floats(y), x.numel(), x.get_device_index(), current_stream(x)));
  return y;
}

// Returns dx, like x.
Tensor backward(const Tensor& dy, const Tensor& x) {
  check_float_input(x, x, "x");
  check_float_input(dy, x, "the gradient of y");
  STD_TORCH_CHECK(dy.numel() == x.numel(), "the gradient of y must have the shape of x");
  Tensor dx = torch::stable::empty_like(x);
  check_launch(launch_stage_gradient(input_floats(dy), input_floats(x), output_floats(dx), x.numel(),
                                     x.get_device_index(), current_stream(x)));
  return dx;
}

}  // namespace OP_NAMESPACE

STABLE_TORCH_LIBRARY(OP_NAMESPACE, m) {
  m.def("forward(Tensor x) -> Tensor");
  m.def("backward(Tensor dy, Tensor x) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(OP_NAMESPACE, CUDA, m) {
  m.impl("forward", TORCH_BOX(&OP_NAMESPACE::forward));
  m.impl("backward", TORCH_BOX(&OP_NAMESPACE::backward));
}
