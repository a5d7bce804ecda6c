// The complex numbers of cuComplex.h.
#include <cuComplex.h>

#define TEST extern "C"

__global__ void of_floats(cuComplex a, cuComplex b, cuComplex c, cuComplex* out) {
  out[0] = cuCaddf(a, b);
  out[1] = cuCsubf(a, b);
  out[2] = cuCmulf(a, b);
  out[3] = cuCdivf(a, b);
  out[4] = cuCfmaf(a, b, c);
  out[5] = cuConjf(a);
  out[6] = make_cuFloatComplex(cuCabsf(a), cuCrealf(b) + cuCimagf(c));
}
__global__ void of_doubles(cuDoubleComplex a, cuDoubleComplex b, cuDoubleComplex c, cuDoubleComplex* out) {
  out[0] = cuCadd(a, b);
  out[1] = cuCsub(a, b);
  out[2] = cuCmul(a, b);
  out[3] = cuCdiv(a, b);
  out[4] = cuCfma(a, b, c);
  out[5] = cuConj(a);
  out[6] = make_cuDoubleComplex(cuCabs(a), cuCreal(b) + cuCimag(c));
}
TEST int complex_numbers(const float* x, float* floats, double* doubles) {
  const cuComplex a = make_cuComplex(x[0], x[1]), b = make_cuComplex(x[2], x[3]), c = make_cuComplex(x[4], x[5]);
  of_floats<<<1, 1>>>(a, b, c, reinterpret_cast<cuComplex*>(floats));
  of_doubles<<<1, 1>>>(cuComplexFloatToDouble(a), cuComplexFloatToDouble(b), cuComplexFloatToDouble(c),
                       reinterpret_cast<cuDoubleComplex*>(doubles));
  return cudaDeviceSynchronize();
}
