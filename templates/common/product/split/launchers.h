// One side of a product: `extent` rows of the left matrix, or columns of the right one. Depth is what is summed over;
// depth_runs: whether it runs along memory.
struct Operand {
  const float* values;
  int64_t extent;
  bool depth_runs;
};

// Bytes of scratch memory that launch_split_product wants; 0 where a product is better left to others: devices of
// another compute capability than 9.0, and small matrices.
int64_t split_scratch(const Operand& left, const Operand& right, int64_t k, int device);

// target (m, n) = left (m, k) times right (k, n), in products of halves.
LaunchStatus launch_split_product(const Operand& left, const Operand& right, int64_t k, float* target, uint8_t* scratch,
                                  int device, void* stream);
