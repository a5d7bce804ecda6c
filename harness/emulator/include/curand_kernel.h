// Stands in for cuRAND's generators in device code: XORWOW, Philox4_32_10 and MRG32k3a.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda_runtime.h"

struct curandStateXORWOW {
  unsigned int d, v[5];
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
struct curandStatePhilox4_32_10 {
  uint4 ctr, output;
  uint2 key;
  unsigned int STATE;
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
struct curandStateMRG32k3a {
  unsigned int s1[3], s2[3];
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStateXORWOW curandState_t;
typedef curandStateXORWOW curandState;
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;
typedef curandStateMRG32k3a curandStateMRG32k3a_t;

namespace cuemu {
namespace random {

template <typename State>
CUEMU_INLINE void begin_normal(State* state) {
  state->boxmuller_flag = state->boxmuller_flag_double = 0;
  state->boxmuller_extra = 0;
  state->boxmuller_extra_double = 0;
}

inline uint4 philox(uint4 counter, uint2 key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = std::uint64_t{0xD2511F53u} * counter.x, right = std::uint64_t{0xCD9E8D57u} * counter.z;
    counter = {static_cast<unsigned>(right >> 32) ^ counter.y ^ key.x, static_cast<unsigned>(right),
               static_cast<unsigned>(left >> 32) ^ counter.w ^ key.y, static_cast<unsigned>(left)};
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return counter;
}
// Moves the counter on and computes the next four numbers.
CUEMU_INLINE void advance(curandStatePhilox4_32_10* state, std::uint64_t count) {
  uint4 counter = state->ctr;
  const unsigned low = static_cast<unsigned>(count);
  unsigned high = static_cast<unsigned>(count >> 32);
  counter.x += low;
  high += counter.x < low;
  counter.y += high;
  if (counter.y < high && ++counter.z == 0) ++counter.w;
  state->ctr = counter;
  state->output = philox(counter, state->key);
}

// The next number of MRG32k3a, in 1 to 4294967087.
CUEMU_INLINE unsigned mrg(curandStateMRG32k3a* state) {
  constexpr std::uint64_t modulus1 = 4294967087u, modulus2 = 4294944443u;
  const std::uint64_t first = (1403580u * std::uint64_t{state->s1[1]} + 810728u * (modulus1 - state->s1[0])) % modulus1;
  const std::uint64_t second = (527612u * std::uint64_t{state->s2[2]} + 1370589u * (modulus2 - state->s2[0])) % modulus2;
  state->s1[0] = state->s1[1];
  state->s1[1] = state->s1[2];
  state->s1[2] = static_cast<unsigned>(first);
  state->s2[0] = state->s2[1];
  state->s2[1] = state->s2[2];
  state->s2[2] = static_cast<unsigned>(second);
  return static_cast<unsigned>(first <= second ? first + modulus1 - second : first - second);
}
CUEMU_INLINE void jump(curandStateMRG32k3a* state, std::uint64_t count, unsigned exponent) {
  std::uint32_t first[3] = {state->s1[0], state->s1[1], state->s1[2]}, second[3] = {state->s2[0], state->s2[1], state->s2[2]};
  jump_mrg32k3a(first, second, count, exponent);
  for (int i = 0; i < 3; ++i) state->s1[i] = first[i], state->s2[i] = second[i];
}
CUEMU_INLINE void jump(curandStateXORWOW* state, std::uint64_t count, unsigned exponent) {
  std::uint32_t bits[5];
  for (int i = 0; i < 5; ++i) bits[i] = state->v[i];
  jump_xorwow(bits, count, exponent);
  for (int i = 0; i < 5; ++i) state->v[i] = bits[i];
}

constexpr float kTurn = 0x1p-32f * 6.2831855f;
inline float uniform(unsigned bits) { return static_cast<float>(bits) * 0x1p-32f + 0x1p-33f; }
inline double uniform_double(unsigned low, unsigned high) {
  return static_cast<double>(low ^ std::uint64_t{high} << 21) * 0x1p-53 + 0x1p-54;
}
// Two normal numbers of two uniform ones (Box and Muller).
inline float2 normal(float uniform, float angle) {
  const float radius = ::sqrtf(-2.0f * ::logf(uniform));
  return {::sinf(angle) * radius, ::cosf(angle) * radius};
}
inline double2 normal(double uniform, double half_turns) {
  const double radius = ::sqrt(-2.0 * ::log(uniform));
  double2 result;
  ::sincospi(half_turns, &result.x, &result.y);
  return {result.x * radius, result.y * radius};
}
inline float2 normal(unsigned x, unsigned y) { return normal(uniform(x), static_cast<float>(y) * kTurn + kTurn / 2); }
inline double2 normal(const uint4& x) { return normal(uniform_double(x.x, x.y), 2 * uniform_double(x.z, x.w)); }

}  // namespace random
}  // namespace cuemu

// ---- Numbers of 32 bits ----------------------------------------------------------------------------------------------

CUEMU_INLINE unsigned int curand(curandStateXORWOW_t* state) {
  const unsigned first = state->v[0] ^ (state->v[0] >> 2);
  for (int i = 0; i < 4; ++i) state->v[i] = state->v[i + 1];
  state->v[4] = state->v[4] ^ (state->v[4] << 4) ^ first ^ (first << 1);
  state->d += 362437;
  return state->v[4] + state->d;
}
CUEMU_INLINE unsigned int curand(curandStatePhilox4_32_10_t* state) {
  const uint4 four = state->output;
  const unsigned place = state->STATE++;
  if (place == 3) {
    ::cuemu::random::advance(state, 1);
    state->STATE = 0;
  }
  return place == 1 ? four.y : place == 2 ? four.z : place == 3 ? four.w : four.x;
}
CUEMU_INLINE unsigned int curand(curandStateMRG32k3a_t* state) {
  return static_cast<unsigned>(::cuemu::random::mrg(state) * 1.000000048662);
}
CUEMU_INLINE uint4 curand4(curandStatePhilox4_32_10_t* state) {
  const uint4 before = state->output;
  ::cuemu::random::advance(state, 1);
  const uint4 after = state->output;
  switch (state->STATE) {
    case 1: return {before.y, before.z, before.w, after.x};
    case 2: return {before.z, before.w, after.x, after.y};
    case 3: return {before.w, after.x, after.y, after.z};
    default: return before;
  }
}

// ---- Beginnings and jumps --------------------------------------------------------------------------------------------

CUEMU_INLINE void skipahead(unsigned long long count, curandStateXORWOW_t* state) {
  ::cuemu::random::jump(state, count, 0);
  state->d += 362437u * static_cast<unsigned>(count);
}
CUEMU_INLINE void skipahead_sequence(unsigned long long count, curandStateXORWOW_t* state) {
  ::cuemu::random::jump(state, count, 67);
}
CUEMU_INLINE void skipahead(unsigned long long count, curandStatePhilox4_32_10_t* state) {
  const unsigned place = state->STATE + static_cast<unsigned>(count & 3);
  state->STATE = place & 3;
  ::cuemu::random::advance(state, count / 4 + place / 4);
}
CUEMU_INLINE void skipahead_sequence(unsigned long long count, curandStatePhilox4_32_10_t* state) {
  uint4 counter = state->ctr;
  const unsigned low = static_cast<unsigned>(count);
  counter.z += low;
  counter.w += static_cast<unsigned>(count >> 32) + (counter.z < low);
  state->ctr = counter;
  ::cuemu::random::advance(state, 0);
}
CUEMU_INLINE void skipahead(unsigned long long count, curandStateMRG32k3a_t* state) { ::cuemu::random::jump(state, count, 0); }
CUEMU_INLINE void skipahead_subsequence(unsigned long long count, curandStateMRG32k3a_t* state) {
  ::cuemu::random::jump(state, count, 76);
}
CUEMU_INLINE void skipahead_sequence(unsigned long long count, curandStateMRG32k3a_t* state) {
  ::cuemu::random::jump(state, count, 127);
}

CUEMU_INLINE void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                              curandStateXORWOW_t* state) {
  const unsigned low = 1099087573u * (static_cast<unsigned>(seed) ^ 0xaad26b49u);
  const unsigned high = 2591861531u * (static_cast<unsigned>(seed >> 32) ^ 0xf7dcefddu);
  state->d = 6615241u + high + low;
  state->v[0] = 123456789u + low;
  state->v[1] = 362436069u ^ low;
  state->v[2] = 521288629u + high;
  state->v[3] = 88675123u ^ high;
  state->v[4] = 5783321u + low;
  ::cuemu::random::begin_normal(state);
  skipahead_sequence(subsequence, state);
  skipahead(offset, state);
}
CUEMU_INLINE void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                              curandStatePhilox4_32_10_t* state) {
  state->ctr = {0, 0, 0, 0};
  state->key = {static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32)};
  state->STATE = 0;
  ::cuemu::random::begin_normal(state);
  skipahead_sequence(subsequence, state);
  skipahead(offset, state);
}
CUEMU_INLINE void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                              curandStateMRG32k3a_t* state) {
  const std::uint64_t low = static_cast<unsigned>(seed) ^ 0x55555555u, high = static_cast<unsigned>(seed >> 32) ^ 0xAAAAAAAAu;
  for (int i = 0; i < 3; ++i) {
    state->s1[i] = seed == 0 ? 12345 : static_cast<unsigned>((i == 1 ? high : low) * 12345 % 4294967087u);
    state->s2[i] = seed == 0 ? 12345 : static_cast<unsigned>((i == 1 ? low : high) * 12345 % 4294944443u);
  }
  ::cuemu::random::begin_normal(state);
  skipahead_subsequence(subsequence, state);
  skipahead(offset, state);
}

// ---- Uniform numbers, in (0, 1] --------------------------------------------------------------------------------------

CUEMU_INLINE float curand_uniform(curandStateXORWOW_t* state) { return ::cuemu::random::uniform(curand(state)); }
CUEMU_INLINE float curand_uniform(curandStatePhilox4_32_10_t* state) { return ::cuemu::random::uniform(curand(state)); }
CUEMU_INLINE double curand_uniform_double(curandStateMRG32k3a_t* state) {
  return ::cuemu::random::mrg(state) * 2.3283065498378288e-10;
}
CUEMU_INLINE float curand_uniform(curandStateMRG32k3a_t* state) { return static_cast<float>(curand_uniform_double(state)); }
CUEMU_INLINE float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
  const uint4 x = curand4(state);
  return {::cuemu::random::uniform(x.x), ::cuemu::random::uniform(x.y), ::cuemu::random::uniform(x.z),
          ::cuemu::random::uniform(x.w)};
}
CUEMU_INLINE double curand_uniform_double(curandStateXORWOW_t* state) {
  const unsigned low = curand(state);
  return ::cuemu::random::uniform_double(low, curand(state));
}
// From one number of 32 bits, as in cuRAND.
CUEMU_INLINE double curand_uniform_double(curandStatePhilox4_32_10_t* state) { return curand(state) * 0x1p-32 + 0x1p-32; }
CUEMU_INLINE double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
  const uint4 x = curand4(state);
  return {::cuemu::random::uniform_double(x.x, x.y), ::cuemu::random::uniform_double(x.z, x.w)};
}
CUEMU_INLINE double4 curand_uniform4_double(curandStatePhilox4_32_10_t* state) {
  const double2 x = curand_uniform2_double(state), y = curand_uniform2_double(state);
  return {x.x, x.y, y.x, y.y};
}

// ---- Normal and log-normal numbers -----------------------------------------------------------------------------------

CUEMU_INLINE float2 curand_normal2(curandStateXORWOW_t* state) {
  const unsigned x = curand(state);
  return ::cuemu::random::normal(x, curand(state));
}
CUEMU_INLINE float2 curand_normal2(curandStatePhilox4_32_10_t* state) {
  const unsigned x = curand(state);
  return ::cuemu::random::normal(x, curand(state));
}
CUEMU_INLINE float2 curand_normal2(curandStateMRG32k3a_t* state) {
  const float x = curand_uniform(state);
  return ::cuemu::random::normal(x, curand_uniform(state) * 6.2831855f);
}
CUEMU_INLINE float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
  const uint4 x = curand4(state);
  const float2 first = ::cuemu::random::normal(x.x, x.y), second = ::cuemu::random::normal(x.z, x.w);
  return {first.x, first.y, second.x, second.y};
}
CUEMU_INLINE double2 curand_normal2_double(curandStateXORWOW_t* state) {
  uint4 x;
  x.x = curand(state);
  x.y = curand(state);
  x.z = curand(state);
  x.w = curand(state);
  return ::cuemu::random::normal(x);
}
CUEMU_INLINE double2 curand_normal2_double(curandStatePhilox4_32_10_t* state) { return ::cuemu::random::normal(curand4(state)); }
CUEMU_INLINE double2 curand_normal2_double(curandStateMRG32k3a_t* state) {
  const double x = curand_uniform_double(state);
  return ::cuemu::random::normal(x, curand_uniform_double(state) * 2.0);
}
CUEMU_INLINE double4 curand_normal4_double(curandStatePhilox4_32_10_t* state) {
  const double2 x = curand_normal2_double(state), y = curand_normal2_double(state);
  return {x.x, x.y, y.x, y.y};
}

namespace cuemu {
namespace random {

// Of a pair the first number; the state keeps the second one for the next call of the same kind.
template <typename State, typename Map>
CUEMU_INLINE float one_of_pair(State* state, int kind, Map map) {
  if (state->boxmuller_flag == kind) {
    state->boxmuller_flag = 0;
    return state->boxmuller_extra;
  }
  const float2 pair = curand_normal2(state);
  state->boxmuller_extra = map(pair.y);
  state->boxmuller_flag = kind;
  return map(pair.x);
}
template <typename State, typename Map>
CUEMU_INLINE double one_of_pair_double(State* state, int kind, Map map) {
  if (state->boxmuller_flag_double == kind) {
    state->boxmuller_flag_double = 0;
    return state->boxmuller_extra_double;
  }
  const double2 pair = curand_normal2_double(state);
  state->boxmuller_extra_double = map(pair.y);
  state->boxmuller_flag_double = kind;
  return map(pair.x);
}
constexpr int kNormal = 1, kLogNormal = 2;

}  // namespace random
}  // namespace cuemu

template <typename State>
CUEMU_INLINE float curand_normal(State* state) {
  return ::cuemu::random::one_of_pair(state, ::cuemu::random::kNormal, [](float x) { return x; });
}
template <typename State>
CUEMU_INLINE double curand_normal_double(State* state) {
  return ::cuemu::random::one_of_pair_double(state, ::cuemu::random::kNormal, [](double x) { return x; });
}
template <typename State>
CUEMU_INLINE float curand_log_normal(State* state, float mean, float deviation) {
  return ::cuemu::random::one_of_pair(state, ::cuemu::random::kLogNormal,
                                      [=](float x) { return ::expf(mean + deviation * x); });
}
template <typename State>
CUEMU_INLINE double curand_log_normal_double(State* state, double mean, double deviation) {
  return ::cuemu::random::one_of_pair_double(state, ::cuemu::random::kLogNormal,
                                             [=](double x) { return ::exp(mean + deviation * x); });
}
template <typename State>
CUEMU_INLINE float2 curand_log_normal2(State* state, float mean, float deviation) {
  const float2 x = curand_normal2(state);
  return {::expf(mean + deviation * x.x), ::expf(mean + deviation * x.y)};
}
CUEMU_INLINE float4 curand_log_normal4(curandStatePhilox4_32_10_t* state, float mean, float deviation) {
  const float4 x = curand_normal4(state);
  return {::expf(mean + deviation * x.x), ::expf(mean + deviation * x.y), ::expf(mean + deviation * x.z),
          ::expf(mean + deviation * x.w)};
}
template <typename State>
CUEMU_INLINE double2 curand_log_normal2_double(State* state, double mean, double deviation) {
  const double2 x = curand_normal2_double(state);
  return {::exp(mean + deviation * x.x), ::exp(mean + deviation * x.y)};
}
