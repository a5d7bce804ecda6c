constexpr int kWarpSize = 32;
constexpr int kMaxWarps = 32;  // of one block
constexpr unsigned kAllLanes = 0xffffffffu;

int64_t ceil_div(int64_t dividend, int64_t divisor) { return (dividend + divisor - 1) / divisor; }

// Blocks for so many items; kernels stride by gridDim.x over what lies beyond CUDA's limit.
unsigned grid_for(int64_t items) { return std::min<int64_t>(items, 0x7fffffff); }

// Whole warps for a block that walks over `length` elements, four a thread.
unsigned threads_for(int64_t length, int most) { return std::clamp<int64_t>(ceil_div(length, 128) * 32, 32, most); }
