// Numbers of cuRAND's generators. curand_results.json has what cuRAND's own headers give, compiled for the host from this file.
#include <curand_kernel.h>

#define TEST extern "C"

struct Numbers {
  unsigned bits[26];
  float floats[26];
  double doubles[22];
};

template <typename State>
__device__ void draw(State* state, Numbers* to) {
  unsigned* bits = to->bits;
  float* floats = to->floats;
  double* doubles = to->doubles;
  const auto pair = [&](float2 x) { *floats++ = x.x, *floats++ = x.y; };
  const auto double_pair = [&](double2 x) { *doubles++ = x.x, *doubles++ = x.y; };
  for (int i = 0; i < 7; ++i) *bits++ = curand(state);
  for (int i = 0; i < 3; ++i) *floats++ = curand_uniform(state);
  for (int i = 0; i < 2; ++i) *doubles++ = curand_uniform_double(state);
  for (int i = 0; i < 3; ++i) *floats++ = curand_normal(state);
  for (int i = 0; i < 3; ++i) *floats++ = curand_log_normal(state, 0.5f, 0.25f);
  for (int i = 0; i < 3; ++i) *doubles++ = curand_normal_double(state);
  for (int i = 0; i < 3; ++i) *doubles++ = curand_log_normal_double(state, 0.5, 0.25);
  pair(curand_normal2(state));
  pair(curand_log_normal2(state, 0.5f, 0.25f));
  double_pair(curand_normal2_double(state));
  double_pair(curand_log_normal2_double(state, 0.5, 0.25));
  *bits++ = curand(state);
  skipahead(1000003, state);
  *bits++ = curand(state);
  skipahead_sequence(0x500000003ull, state);
  *bits++ = curand(state);
}
__device__ inline void draw_more(curandStatePhilox4_32_10_t* state, Numbers* to) {
  draw(state, to);
  unsigned* bits = to->bits + 10;
  float* floats = to->floats + 13;
  double* doubles = to->doubles + 12;
  const auto four = [&](float4 x) { *floats++ = x.x, *floats++ = x.y, *floats++ = x.z, *floats++ = x.w; };
  for (int i = 0; i < 3; ++i) {
    const uint4 x = curand4(state);
    *bits++ = x.x, *bits++ = x.y, *bits++ = x.z, *bits++ = x.w, *bits++ = curand(state);
  }
  four(curand_uniform4(state));
  four(curand_normal4(state));
  four(curand_log_normal4(state, 0.5f, 0.25f));
  const double2 two = curand_uniform2_double(state);
  const double4 uniform = curand_uniform4_double(state), normal = curand_normal4_double(state);
  const double all[] = {two.x, two.y, uniform.x, uniform.y, uniform.z, uniform.w, normal.x, normal.y, normal.z, normal.w};
  for (const double value : all) *doubles++ = value;
}

template <typename State>
__device__ void begin_and_draw(unsigned long long seed, unsigned long long sequence, unsigned long long offset, Numbers* to) {
  State state;
  curand_init(seed, sequence, offset, &state);
  if constexpr (requires { state.ctr; }) draw_more(&state, to);
  else draw(&state, to);
}
__global__ void numbers(int generator, unsigned long long seed, unsigned long long sequence, unsigned long long offset,
                        Numbers* to) {
  if (generator == 0) begin_and_draw<curandState>(seed, sequence, offset, to);
  if (generator == 1) begin_and_draw<curandStatePhilox4_32_10_t>(seed, sequence, offset, to);
  if (generator == 2) begin_and_draw<curandStateMRG32k3a_t>(seed, sequence, offset, to);
}
#ifndef ON_THE_HOST
TEST void run_numbers(int generator, unsigned long long seed, unsigned long long sequence, unsigned long long offset,
                      Numbers* to) {
  numbers<<<1, 1>>>(generator, seed, sequence, offset, to);
}
#endif
