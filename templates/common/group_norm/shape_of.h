Shape shape_of(const Tensor& x, const Tensor& weight, int64_t groups) {
  STD_TORCH_CHECK(x.dim() >= 2, "x must be (batch, channels, *spatial), got ", x.dim(), " dimension(s)");
  const int64_t samples = x.size(0);
  const int64_t channels = x.size(1);
  STD_TORCH_CHECK(groups > 0 && channels > 0 && channels % groups == 0, channels, " channels cannot be divided into ",
                  groups, " groups");
  STD_TORCH_CHECK(weight.dim() == 1 && weight.size(0) == channels, "weight must have ", channels, " elements");
  int64_t spatial = 1;
  for (int64_t axis = 2; axis < x.dim(); ++axis) spatial *= x.size(axis);
  return {samples, channels, groups, spatial{{ ", spatial" if pitched else "" }}};
}
