// One axis of a transposed convolution without padding: coarse pixel i and tap k meet at fine pixel i * stride + k.
struct Axis {
  int coarse;  // pixels
  int fine;    // (coarse - 1) * stride + kernel
  int kernel;  // taps
  int stride;
  int most;  // taps that meet at one fine pixel: kernel / stride, rounded up
};

// Its images: coarse ones (samples, coarse_channels, y.coarse, x.coarse), which it reads, and fine ones alike, which it
// writes; all contiguous. Weights are (coarse_channels, fine_channels, y.kernel, x.kernel).
struct Convolution {
  int64_t samples;
  int coarse_channels;
  int fine_channels;
  Axis y;
  Axis x;
  int coarse_plane;  // pixels of an image
  int fine_plane;
};

// The parts in which launch_to_fine gathers the moments of a channel of a sample; three floats each.
int64_t moments_of_channel(const Convolution& convolution);

// Writes the fine images, from the weights as (y.kernel, x.kernel, coarse_channels, fine_channels), and where
// moments are gathered those too: (samples, fine_channels, moments_of_channel).
LaunchStatus launch_to_fine(const float* coarse, const float* taps, const float* bias, const Convolution& convolution,
                            float* fine, float* moments, int device, void* stream);

// Writes the gradient of the coarse images from that of the fine ones and the weights as
// (y.kernel, x.kernel, fine_channels, coarse_channels).
LaunchStatus launch_to_coarse(const float* fine, const float* taps, const Convolution& convolution, float* coarse,
                              int device, void* stream);

// Floats of scratch memory that launch_weight_gradient wants.
int64_t weight_gradient_scratch(const Convolution& convolution);

// Writes the gradient of the weights from the coarse images and the gradient of the fine ones.
LaunchStatus launch_weight_gradient(const float* coarse, const float* fine, const Convolution& convolution,
                                    float* dweight, float* scratch, int device, void* stream);
