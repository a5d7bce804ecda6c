// left (m, k) times right (k, n), row by row in memory; an operand may lie there transposed instead.
struct Product {
  const float* left;
  const float* right;
  int64_t m;
  int64_t n;
  int64_t k;
};
