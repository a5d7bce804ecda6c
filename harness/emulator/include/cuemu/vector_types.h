// CUDA's vector types, with CUDA's alignments, and dim3.
#pragma once

#define CUEMU_VECTORS(name, scalar, align1, align2, align4)                                        \
  struct alignas(align1) name##1 { scalar x; };                                                    \
  struct alignas(align2) name##2 { scalar x, y; };                                                 \
  struct alignas(align1) name##3 { scalar x, y, z; };                                              \
  struct alignas(align4) name##4 { scalar x, y, z, w; };                                           \
  constexpr name##1 make_##name##1(scalar x) { return {x}; }                                       \
  constexpr name##2 make_##name##2(scalar x, scalar y) { return {x, y}; }                          \
  constexpr name##3 make_##name##3(scalar x, scalar y, scalar z) { return {x, y, z}; }             \
  constexpr name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }

CUEMU_VECTORS(char, signed char, 1, 2, 4)
CUEMU_VECTORS(uchar, unsigned char, 1, 2, 4)
CUEMU_VECTORS(short, short, 2, 4, 8)
CUEMU_VECTORS(ushort, unsigned short, 2, 4, 8)
CUEMU_VECTORS(int, int, 4, 8, 16)
CUEMU_VECTORS(uint, unsigned int, 4, 8, 16)
CUEMU_VECTORS(long, long, 8, 16, 16)
CUEMU_VECTORS(ulong, unsigned long, 8, 16, 16)
CUEMU_VECTORS(longlong, long long, 8, 16, 16)
CUEMU_VECTORS(ulonglong, unsigned long long, 8, 16, 16)
CUEMU_VECTORS(float, float, 4, 8, 16)
CUEMU_VECTORS(double, double, 8, 16, 16)
#undef CUEMU_VECTORS

#define CUEMU_FOUR(name, scalar, alignment)                                                        \
  struct alignas(alignment) name { scalar x, y, z, w; };                                           \
  constexpr name make_##name(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }
#define CUEMU_FOURS(name, scalar) CUEMU_FOUR(name##4_16a, scalar, 16) CUEMU_FOUR(name##4_32a, scalar, 32)
CUEMU_FOURS(long, long)
CUEMU_FOURS(ulong, unsigned long)
CUEMU_FOURS(longlong, long long)
CUEMU_FOURS(ulonglong, unsigned long long)
CUEMU_FOURS(double, double)
#undef CUEMU_FOURS
#undef CUEMU_FOUR

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 sizes) : x(sizes.x), y(sizes.y), z(sizes.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
