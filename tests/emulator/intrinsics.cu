// Integer functions of CUDA that compute a word from up to three words, and functions of 16-bit floats on their bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define ONE_WORD(call) \
  call(__vabs2) call(__vabsss2) call(__vneg2) call(__vnegss2) call(__vabs4) call(__vabsss4) call(__vneg4) \
  call(__vnegss4)
#define TWO_WORDS(call) \
  call(__vadd2) call(__vsub2) call(__vaddss2) call(__vaddus2) call(__vsubss2) call(__vsubus2) call(__vabsdiffs2) \
  call(__vabsdiffu2) call(__vavgs2) call(__vavgu2) call(__vhaddu2) call(__vmaxs2) call(__vmaxu2) call(__vmins2) \
  call(__vminu2) call(__vsads2) call(__vsadu2) call(__vcmpeq2) call(__vseteq2) call(__vcmpne2) call(__vsetne2) \
  call(__vcmpges2) call(__vsetges2) call(__vcmpgeu2) call(__vsetgeu2) call(__vcmpgts2) call(__vsetgts2) call(__vcmpgtu2) \
  call(__vsetgtu2) call(__vcmples2) call(__vsetles2) call(__vcmpleu2) call(__vsetleu2) call(__vcmplts2) call(__vsetlts2) \
  call(__vcmpltu2) call(__vsetltu2) call(__vadd4) call(__vsub4) call(__vaddss4) call(__vaddus4) call(__vsubss4) \
  call(__vsubus4) call(__vabsdiffs4) call(__vabsdiffu4) call(__vavgs4) call(__vavgu4) call(__vhaddu4) call(__vmaxs4) \
  call(__vmaxu4) call(__vmins4) call(__vminu4) call(__vsads4) call(__vsadu4) call(__vcmpeq4) call(__vseteq4) \
  call(__vcmpne4) call(__vsetne4) call(__vcmpges4) call(__vsetges4) call(__vcmpgeu4) call(__vsetgeu4) call(__vcmpgts4) \
  call(__vsetgts4) call(__vcmpgtu4) call(__vsetgtu4) call(__vcmples4) call(__vsetles4) call(__vcmpleu4) call(__vsetleu4) \
  call(__vcmplts4) call(__vsetlts4) call(__vcmpltu4) call(__vsetltu4) call(__vimax_s32_relu) call(__vimax_s16x2_relu) \
  call(__vimin_s32_relu) call(__vimin_s16x2_relu)
#define THREE_WORDS(call) \
  call(__vimax3_s32) call(__vimax3_s32_relu) call(__vimax3_s16x2) call(__vimax3_s16x2_relu) call(__vimax3_u32) \
  call(__vimax3_u16x2) call(__vimin3_s32) call(__vimin3_s32_relu) call(__vimin3_s16x2) call(__vimin3_s16x2_relu) \
  call(__vimin3_u32) call(__vimin3_u16x2) call(__viaddmax_s32) call(__viaddmax_s32_relu) call(__viaddmax_s16x2) \
  call(__viaddmax_s16x2_relu) call(__viaddmax_u32) call(__viaddmax_u16x2) call(__viaddmin_s32) call(__viaddmin_s32_relu) \
  call(__viaddmin_s16x2) call(__viaddmin_s16x2_relu) call(__viaddmin_u32) call(__viaddmin_u16x2) call(__dp2a_lo) \
  call(__dp2a_hi) call(__dp4a) call(__fns)
// With the bool that they set in the bit above, or both of them.
#define CHOICES(call) call(__vibmax_s32) call(__vibmin_s32) call(__vibmax_u32) call(__vibmin_u32)
#define PAIRS_OF_CHOICES(call) call(__vibmax_s16x2) call(__vibmin_s16x2) call(__vibmax_u16x2) call(__vibmin_u16x2)
// The variants for signed words and for vectors.
#define PRODUCTS(call) \
  call(int:__dp2a_lo, __dp2a_lo(int(x), int(y), int(z) >> 4)) \
  call(int:__dp2a_hi, __dp2a_hi(int(x), int(y), int(z) >> 4)) \
  call(short2:__dp2a_lo, __dp2a_lo(pair_of<short2>(x), pair_of<char4>(y), int(z) >> 4)) \
  call(short2:__dp2a_hi, __dp2a_hi(pair_of<short2>(x), pair_of<char4>(y), int(z) >> 4)) \
  call(ushort2:__dp2a_lo, __dp2a_lo(pair_of<ushort2>(x), pair_of<uchar4>(y), z)) \
  call(ushort2:__dp2a_hi, __dp2a_hi(pair_of<ushort2>(x), pair_of<uchar4>(y), z)) \
  call(char4:__dp4a, __dp4a(pair_of<char4>(x), pair_of<char4>(y), int(z) >> 4)) \
  call(uchar4:__dp4a, __dp4a(pair_of<uchar4>(x), pair_of<uchar4>(y), z)) \
  call(__nv_bswap16, __nv_bswap16(x)) call(__nv_bswap32, __nv_bswap32(x))
#define ROUNDINGS(call, name) call(name##_rn) call(name##_rz) call(name##_ru) call(name##_rd)
#define FROM_INTEGERS(call, tag) \
  ROUNDINGS(call, __short2##tag) ROUNDINGS(call, __ushort2##tag) ROUNDINGS(call, __int2##tag) \
  ROUNDINGS(call, __uint2##tag)
#define FROM_LONG_INTEGERS(call, tag) ROUNDINGS(call, __ll2##tag) ROUNDINGS(call, __ull2##tag)
#define TO_INTEGERS(call, tag) \
  ROUNDINGS(call, __##tag##2ull) ROUNDINGS(call, __##tag##2ll) call(__##tag##2char_rz) call(__##tag##2uchar_rz)
#define COMPARISONS(call) \
  call(eq) call(ne) call(lt) call(le) call(gt) call(ge) call(equ) call(neu) call(ltu) call(leu) call(gtu) call(geu)

namespace {

template <typename Pair>
__device__ unsigned bits_of(Pair pair) {
  unsigned bits;
  memcpy(&bits, &pair, sizeof bits);
  return bits;
}
template <typename Pair>
__device__ Pair pair_of(unsigned bits) {
  Pair pair;
  memcpy(&pair, &bits, sizeof pair);
  return pair;
}
__device__ unsigned bits_of(__half value) { return __half_as_ushort(value); }
__device__ unsigned bits_of(__nv_bfloat16 value) { return __bfloat16_as_ushort(value); }

// Returns the result of a function, by its place among the names below.
__device__ unsigned long long evaluate(int which, unsigned x, unsigned y, unsigned z) {
  int number = 0;
  [[maybe_unused]] bool high = false, low = false;
  [[maybe_unused]] unsigned found = 0;
  const unsigned long long wide = static_cast<unsigned long long>(y) << 32 | x;
#define NUMBERED(...) \
  if (number++ == which) return static_cast<unsigned long long>(__VA_ARGS__);
#define CALL(name) NUMBERED(static_cast<unsigned>(name(x)))
  ONE_WORD(CALL)
#undef CALL
#define CALL(name) NUMBERED(static_cast<unsigned>(name(x, y)))
  TWO_WORDS(CALL)
#undef CALL
#define CALL(name) NUMBERED(static_cast<unsigned>(name(x, y, z)))
  THREE_WORDS(CALL)
#undef CALL
#define CALL(name, ...) NUMBERED(static_cast<unsigned>(__VA_ARGS__))
  PRODUCTS(CALL)
#undef CALL
#define CALL(name) NUMBERED((found = name(x, y, &low), found | static_cast<unsigned long long>(low) << 32))
  CHOICES(CALL)
#undef CALL
#define CALL(name)                                                                              \
  NUMBERED((found = name(x, y, &high, &low), found | static_cast<unsigned long long>(low) << 32 | \
                                                 static_cast<unsigned long long>(high) << 33))
  PAIRS_OF_CHOICES(CALL)
#undef CALL
#define CALL(name) NUMBERED(bits_of(name(x)))
  FROM_INTEGERS(CALL, half) FROM_INTEGERS(CALL, bfloat16)
#undef CALL
#define CALL(name) NUMBERED(bits_of(name(wide)))
  FROM_LONG_INTEGERS(CALL, half) FROM_LONG_INTEGERS(CALL, bfloat16)
#undef CALL
#define CALL(name) NUMBERED(name(pair_of<__half2>(x).x))
  TO_INTEGERS(CALL, half)
#undef CALL
#define CALL(name) NUMBERED(name(pair_of<__nv_bfloat162>(x).x))
  TO_INTEGERS(CALL, bfloat16)
#undef CALL
#define CALL(name)                                                          \
  NUMBERED(bits_of(__h##name##2(pair_of<__half2>(x), pair_of<__half2>(y)))) \
  NUMBERED(__h##name##2_mask(pair_of<__half2>(x), pair_of<__half2>(y)))     \
  NUMBERED(__hb##name##2(pair_of<__half2>(x), pair_of<__half2>(y)))         \
  NUMBERED(bits_of(__h##name##2(pair_of<__nv_bfloat162>(x), pair_of<__nv_bfloat162>(y))))
  COMPARISONS(CALL)
#undef CALL
  NUMBERED(bits_of(__hisnan2(pair_of<__half2>(x))))
  NUMBERED(bits_of(__hcmadd(pair_of<__half2>(x), pair_of<__half2>(y), pair_of<__half2>(z))))
  return ~0ull;
}

__global__ void evaluate_all(int which, const unsigned* words, unsigned long long* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = evaluate(which, words[3 * i], words[3 * i + 1], words[3 * i + 2]);
}

}  // namespace

// The names, with spaces between them.
extern "C" const char* intrinsic_names() {
#define CALL(name, ...) #name " "
  return ONE_WORD(CALL) TWO_WORDS(CALL) THREE_WORDS(CALL) PRODUCTS(CALL) CHOICES(CALL) PAIRS_OF_CHOICES(CALL)
      FROM_INTEGERS(CALL, half) FROM_INTEGERS(CALL, bfloat16)
      FROM_LONG_INTEGERS(CALL, half) FROM_LONG_INTEGERS(CALL, bfloat16)
      TO_INTEGERS(CALL, half) TO_INTEGERS(CALL, bfloat16)
#undef CALL
#define CALL(name) "__h" #name "2 __h" #name "2_mask __hb" #name "2 bf16:__h" #name "2 "
      COMPARISONS(CALL)
#undef CALL
      "__hisnan2 __hcmadd";
}

// Writes a function's results for n times three words.
extern "C" int run_intrinsic(int which, const unsigned* words, unsigned long long* out, int n) {
  unsigned* given = nullptr;
  unsigned long long* results = nullptr;
  cudaMalloc(&given, 3 * n * sizeof(unsigned));
  cudaMalloc(&results, n * sizeof(unsigned long long));
  cudaMemcpy(given, words, 3 * n * sizeof(unsigned), cudaMemcpyHostToDevice);
  evaluate_all<<<(n + 127) / 128, 128>>>(which, given, results, n);
  cudaMemcpy(out, results, n * sizeof(unsigned long long), cudaMemcpyDeviceToHost);
  cudaFree(given);
  cudaFree(results);
  return cudaGetLastError();
}
