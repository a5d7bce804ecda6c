// Which kernels a shape is worked on with.

enum class Plan {
  kSmall,     // a group a block or a warp, in one launch
  kParts,     // several blocks a group, a launch for each pass
  kStreamed,  // all blocks at one group after another: one launch, one pass over memory
};

struct Choice {
  Plan plan;
  int blocks;  // of a launch that streams
};

// How a launch streams: elements that are copied at once, chunks in shared memory, warps that take sums.
constexpr int kChunkBytes = 16 << 10;
constexpr int kChunk = kChunkBytes / sizeof(Element);
constexpr int kForwardTeams = 4;  // of four warps; each holds one chunk in registers
constexpr int kForwardStages = 13;
constexpr int kForwardWaiting = kForwardTeams + kForwardStages;  // chunks of a block, at most
constexpr int kForwardSumWarps = 8;
constexpr int kForwardShared = kForwardStages * kChunkBytes;
#ifdef SM_90A
constexpr bool kMovesRegisters = sizeof(Element) == 4;  // to threads that hold chunks; halves need more warps for sums
#else
constexpr bool kMovesRegisters = false;
#endif
constexpr int kBackwardTeams = kMovesRegisters ? 2 : 4;  // each holds so many chunks of x and dy:
constexpr int kBackwardSlots = kMovesRegisters ? 3 : 1;
constexpr int kBackwardStages = 7;  // of x and dy each
constexpr int kBackwardWaiting = kBackwardTeams * kBackwardSlots + kBackwardStages;
constexpr int kBackwardSumWarps = sizeof(Element) == 2 ? 4 : 2;  // as many bytes of halves are twice the work
constexpr int kBackwardShared = 2 * kBackwardStages * kChunkBytes;
constexpr int kMaxBlocks = 160;
constexpr int kBesideRing = 3 << 10;  // bytes of shared memory for barriers and statistics

// Forward: groups up to this many elements fit the registers of a block.
constexpr int64_t kForwardSmall = 16384;
// Backward: a block that walks twice over its group is as fast as several launches up to about this many elements.
constexpr int64_t kBackwardSmall = 1024;
// Below this many bytes everything stays in L2 between two launches, and blocks that wait for each other cost more.
constexpr int64_t kStreamedBytes = int64_t{8} << 20;

inline int attribute_of(cudaDeviceAttr attribute, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, attribute, device) == cudaSuccess ? value : 0;
}

// Blocks of a launch that streams on a device; 0 where it cannot: bulk copies and their barriers are Hopper's, and the
// ring needs nearly all shared memory of a multiprocessor.
inline int streaming_blocks(int device, int shared_bytes) {
  if (device < 0 && cudaGetDevice(&device) != cudaSuccess) return 0;
  if (attribute_of(cudaDevAttrComputeCapabilityMajor, device) < 9) return 0;
  if (attribute_of(cudaDevAttrCooperativeLaunch, device) == 0) return 0;
  if (attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin, device) < shared_bytes + kBesideRing) return 0;
  const int blocks = attribute_of(cudaDevAttrMultiProcessorCount, device);
  return blocks < kMaxBlocks ? blocks : kMaxBlocks;
}

// `is_aligned`: all tensors begin at multiples of 16 bytes; `small`: elements of a group that is small; `waiting`:
// chunks that a block's ring and registers hold.
//
// A block's chunks of a group wait in its ring and registers until the whole group is there. One more than these hold,
// and nobody could ever go on: such groups are not streamed.
inline Choice choice_of(const Shape& shape, int64_t small, bool is_aligned, int waiting, int shared_bytes, int device) {
  const int64_t group_length = shape.channels / shape.groups * shape.spatial;
  if (group_length <= small) return {Plan::kSmall, 0};
  const bool is_cut = is_aligned && shape.spatial > 0 && shape.spatial % kChunk == 0;
  const int64_t bytes = shape.samples * shape.channels * shape.spatial * static_cast<int64_t>(sizeof(Element));
  if (is_cut && bytes >= kStreamedBytes) {
    const int blocks = streaming_blocks(device, shared_bytes);
    if (blocks > 0 && ceil_div(group_length / kChunk, blocks) < waiting) return {Plan::kStreamed, blocks};
  }
  return {Plan::kParts, 0};  // any device, any alignment, rows that chunks do not divide
}

inline bool is_vector_aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

// Floats of scratch memory for the words of a launch that streams.
inline int64_t streaming_words(const Shape& shape) {
  const int64_t of_group = shape.channels / shape.groups * (shape.spatial / kChunk);
  return 4 * shape.samples * shape.groups * (of_group < kMaxBlocks ? of_group : kMaxBlocks);
}

// Floats of scratch memory for the sums of a backward's chunks.
inline int64_t streaming_sums(const Shape& shape) {
  return 2 * kBackwardSumWarps * shape.samples * shape.channels * (shape.spatial / kChunk);
}
