// dx (batch, in) = dz (batch, out) times weight (out, in).
torch::Tensor input_gradient(torch::Tensor dz, torch::Tensor weight) {
  const int64_t rows = dz.size(0), columns = weight.size(1), depth = weight.size(0);
  check(dz, dz, {rows, depth}, "dz");
  check(weight, dz, {depth, columns}, "the weight of the linear layer");
  return multiply<true, false>(dz, {floats(dz), floats(weight), rows, columns, depth}, KeepSums());
}

// dweight (out, in) = dz (batch, out) transposed times x (batch, in).
torch::Tensor weight_gradient(torch::Tensor dz, torch::Tensor x) {
  const int64_t rows = dz.size(1), columns = x.size(1), depth = x.size(0);
  check(dz, dz, {depth, rows}, "dz");
  check(x, dz, {depth, columns}, "x");
  return multiply<false, false>(dz, {floats(dz), floats(x), rows, columns, depth}, KeepSums());
}
