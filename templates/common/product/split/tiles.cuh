// How two fp16 halves of every value lie in memory, ready for tensor cores. A value of a row, scaled by the row's power
// of two, is high + low: high is the value rounded to fp16, low what is left, rounded as well. 22 bits are kept.
//
// A tile is kTile rows by kStep depths. A row of a tile has kLine bytes: kStep high halves, then kStep low ones, in
// chunks of 16 bytes. Chunk c of row r lies at place c ^ r % 8: this is the 128-byte swizzle that wgmma reads without
// bank conflicts. A tile is contiguous, and so are the tiles of the same rows: one bulk copy brings a tile, without a
// tensor map. What lies outside the matrix is 0.

constexpr int kTile = 128;
constexpr int kStep = 32;
constexpr int kLine = 128;
constexpr int kTileBytes = kTile * kLine;
constexpr int kEight = 8;                        // values of a chunk
constexpr int kChunksOfStep = kStep / kEight;

constexpr unsigned kInfinity = 0x7f800000u;      // bits; more are NaN

inline int64_t steps_of(int64_t depth) { return ceil_div(depth, kStep); }

// The exponent of a row's scale: its largest value, whose bits without the sign are `magnitude`, comes to lie between
// 2^14 and 2^15. Down to 2^-16 of it values keep 22 bits, and none is off by more than 2^-39 of it. A scale above 2^126
// would have an inverse that is no normal float; subnormal values are kept all the same.
__device__ inline int scale_exponent(unsigned magnitude) {
  const int exponent = 14 + 127 - static_cast<int>(magnitude >> 23);
  return exponent < 126 ? exponent : 126;
}

// Rows with infinities or NaN are not multiplied by tensor cores.
__device__ inline float row_scale(unsigned magnitude) {
  return magnitude >= kInfinity ? 0.0f : __int_as_float((127 + scale_exponent(magnitude)) << 23);
}

__device__ inline unsigned magnitude_of(float value) { return __float_as_uint(value) & 0x7fffffffu; }

__device__ inline void split_pair(float first, float second, uint32_t& high, uint32_t& low) {
  const __half2 rounded = __floats2half2_rn(first, second);
  const __half2 rest = __floats2half2_rn(first - __low2float(rounded), second - __high2float(rounded));
  high = *reinterpret_cast<const uint32_t*>(&rounded);
  low = *reinterpret_cast<const uint32_t*>(&rest);
}

// Writes the halves of eight neighbours into their row of a tile. 0 times infinity would be NaN: a scale of 0 clears.
__device__ inline void store_halves(const float (&values)[kEight], float scale, uint8_t* line, int row, int chunk) {
  uint32_t high[kEight / 2];
  uint32_t low[kEight / 2];
#pragma unroll
  for (int i = 0; i < kEight / 2; ++i) {
    split_pair(scale == 0.0f ? 0.0f : values[2 * i] * scale, scale == 0.0f ? 0.0f : values[2 * i + 1] * scale, high[i],
               low[i]);
  }
  const int across = row % 8;
  uint4* const chunks = reinterpret_cast<uint4*>(line);
  chunks[chunk ^ across] = make_uint4(high[0], high[1], high[2], high[3]);
  chunks[(chunk + kChunksOfStep) ^ across] = make_uint4(low[0], low[1], low[2], low[3]);
}
