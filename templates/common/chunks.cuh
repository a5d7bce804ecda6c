// Rows cut into equal chunks; the last may be shorter.
struct Chunks {
  int64_t count;
  int64_t rows;
};

// No more than this many: each leaves a row of partial sums to be added up.
constexpr int64_t kMaxChunks = 1024;

// Chunks of `shortest` rows, of more where there would be too many.
inline Chunks chunks_of(int64_t rows, int64_t shortest) {
  int64_t length = ceil_div(rows, kMaxChunks);
  if (length < shortest) length = shortest;
  return {ceil_div(rows, length), length};
}
