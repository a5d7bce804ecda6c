// A transposed convolution without padding: (samples, in, height, width) becomes (samples, out, fine_height, fine_width).
// Weights are (in, out, kernel_y, kernel_x).
struct DenseConvolution {
  int64_t samples;
  int in;
  int out;
  int height;
  int width;
  int kernel_y;
  int kernel_x;
  int stride_y;
  int stride_x;

  bool is_strided() const { return stride_y != 1 || stride_x != 1; }
  int64_t fine_height() const { return (int64_t{height} - 1) * stride_y + kernel_y; }
  int64_t fine_width() const { return (int64_t{width} - 1) * stride_x + kernel_x; }
  int64_t fine_plane() const { return fine_height() * fine_width(); }
  int64_t pitch() const { return (fine_plane() + 31) / 32 * 32; }  // of planes of z: whole lines of caches

  // A phase is the outputs at one place modulo the strides; these are the most taps that reach one along an axis.
  int phase_taps_y() const { return (kernel_y + stride_y - 1) / stride_y; }
  int phase_taps_x() const { return (kernel_x + stride_x - 1) / stride_x; }
  int phases() const { return stride_y * stride_x; }
};

// Whether tensor cores convolve: by the device, channels, strides, taps and the width of images.
bool suits_tensor_cores(const DenseConvolution& convolution, int device);

// The parts in which launch_convolve gathers the moments of a channel of a sample; three floats each.
int64_t moment_parts(const DenseConvolution& convolution, int device);

// Bytes of scratch memory that launch_convolve wants.
int64_t convolve_scratch(const DenseConvolution& convolution);

// Writes z (samples, out, pitch) without the bias, the moments of GELU with it (samples, out, moment_parts), and the
// bits of every sample's largest magnitude.
LaunchStatus launch_convolve(const float* x, const float* weight, const float* bias,
                             const DenseConvolution& convolution, float* z, float* moments, unsigned* magnitudes,
                             uint8_t* scratch, int device, void* stream);

// What the backward reads; x is what the convolution read, z what it wrote.
struct DenseBackward {
  DenseConvolution convolution;
  int64_t groups;
  const float* dy;
  const float* x;
  const float* z;
  const float* weight;
  Shift bias;
  const float* norm_weight;
  const float* mean;
  const float* rstd;
  const unsigned* magnitudes;
};

// Where its gradients go; null where one is not wanted.
struct DenseGradients {
  float* x;
  float* weight;
  float* bias;
  float* norm_weight;
  float* norm_bias;
};

// Bytes of scratch memory that launch_gradients wants.
int64_t gradients_scratch(const DenseBackward& backward, int device);

// Writes the wanted gradients.
LaunchStatus launch_gradients(const DenseBackward& backward, const DenseGradients& gradients, uint8_t* scratch,
                              int device, void* stream);
