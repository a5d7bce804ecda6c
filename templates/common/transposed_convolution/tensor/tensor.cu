#ifdef SM_90A
{% include "common/barriers.cuh" %}

{% include "common/warpgroup.cuh" %}

{% include "common/transposed_convolution/tensor/halves.cuh" %}

{% include "common/transposed_convolution/tensor/ring.cuh" %}

{% include "common/transposed_convolution/tensor/bring.cuh" %}

{% include "common/transposed_convolution/tensor/correlate.cuh" %}

{% include "common/transposed_convolution/tensor/multiply_narrow.cuh" %}

{% include "common/transposed_convolution/tensor/phases.cuh" %}

{% include "common/transposed_convolution/tensor/gather.cuh" %}

{% include "common/transposed_convolution/tensor/gradient_halves.cuh" %}

{% include "common/transposed_convolution/tensor/multiply_pixels.cuh" %}

{% include "common/transposed_convolution/tensor/weight_sums.cuh" %}

{% include "common/transposed_convolution/tensor/launch.cuh" %}

#else  // no tensor cores of compute capability 9.0
bool suits_tensor_cores(const DenseConvolution& /*convolution*/, int /*device*/) { return false; }

int64_t moment_parts(const DenseConvolution& /*convolution*/, int /*device*/) { return 0; }

int64_t convolve_scratch(const DenseConvolution& /*convolution*/) { return 0; }

LaunchStatus launch_convolve(const float* /*x*/, const float* /*weight*/, const float* /*bias*/,
                             const DenseConvolution& /*convolution*/, float* /*z*/, float* /*moments*/,
                             unsigned* /*magnitudes*/, uint8_t* /*scratch*/, int /*device*/, void* /*stream*/) {
  return {"correlate", "it was not compiled"};
}

int64_t gradients_scratch(const DenseBackward& /*backward*/, int /*device*/) { return 0; }

LaunchStatus launch_gradients(const DenseBackward& /*backward*/, const DenseGradients& /*gradients*/,
                              uint8_t* /*scratch*/, int /*device*/, void* /*stream*/) {
  return {"sum_weight_gradient", "it was not compiled"};
}
#endif
