// What the streaming kernels share: barriers in shared memory, bulk copies, words between multiprocessors. All of it is
// for compute capability 9.0 and above; other code never comes here (see plan.cuh).
//
// Every multiprocessor has one block, and every block a share of each group, so that no more than a few groups are in
// flight. A group is cut into chunks of kChunkBytes, and chunk c of the whole input belongs to block c % gridDim.x.
// One warp of a block copies its chunks, in order, into a ring of shared memory; some warps take sums of what arrives;
// teams of four warps take chunks into registers and wait there for what the whole group came to, then write. Blocks
// tell each other by one 16-byte word a block and group, which is its own flag: both halves of an unwritten one are
// kUnset, which no sum and no count ever is. One warp reads the words of a group and tells the block's teams.
//
// Nobody waits for a block that is not running: the launch is a cooperative one. A team may wait for a chunk's barrier
// by parity since sums are taken in order, and no chunk behind a team's last is a ring ahead (no more chunks are in
// registers than in the ring).
// A group has no more chunks of one block than fit its ring and registers (choice_of).

constexpr int kTeam = 128;                      // threads that write a chunk
constexpr int kWordsPerLane = kMaxBlocks / 32;  // of a group, read by a warp
constexpr int kVectorBytes = 16;
constexpr int kPerVector = kVectorBytes / sizeof(Element);
constexpr int kChunkVectors = kChunkBytes / kVectorBytes;
constexpr int kVectors = kChunkVectors / kTeam;  // of a chunk, that a thread of a team holds
constexpr unsigned long long kUnset = ~0ull;

// A power of two above what of one block may be in flight.
constexpr int ring_of(int in_flight) {
  int size = 8;
  while (size <= in_flight) size *= 2;
  return size;
}

using Vector = Format<Element>::Vector;

// How the input is cut; all chunks have kChunk elements.
struct Chunks {
  int groups;             // over all samples
  int of_group;
  int of_row;
  int channels_per_group;
  int groups_per_sample;

  __device__ int channel(int group, int chunk_of_group) const {
    return group % groups_per_sample * channels_per_group + chunk_of_group / of_row;
  }
};

{% include "common/barriers.cuh" %}

__device__ __forceinline__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Gives a place of the ring back, by all lanes of a warp that has read it. The next copy into it is the async proxy's:
// without the fence, loads that were issued and have not returned may still see what it writes.
__device__ __forceinline__ void release_place(uint64_t* empty) {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(empty);
}

// Copies a chunk into shared memory; its bytes count at the barrier.
__device__ __forceinline__ void bulk_load(void* to, const Element* from, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "n"(kChunkBytes), "r"(shared_address(barrier))
               : "memory");
}

__device__ __forceinline__ ulonglong2 read_word(const ulonglong2* word) {
  ulonglong2 value;
  asm volatile("ld.relaxed.gpu.global.v2.u64 { %0, %1 }, [%2];" : "=l"(value.x), "=l"(value.y) : "l"(word) : "memory");
  return value;
}

__device__ __forceinline__ void write_word(ulonglong2* word, unsigned long long first, unsigned long long second) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], { %1, %2 };" ::"l"(word), "l"(first), "l"(second) : "memory");
}

// The words of a group, lane by lane, as soon as all are there; words that there are none of are 0.
__device__ __forceinline__ void read_words(const ulonglong2* words, int count, int lane,
                                           ulonglong2 (&values)[kWordsPerLane]) {
  bool are_set;
  do {
    are_set = true;
#pragma unroll
    for (int i = 0; i < kWordsPerLane; ++i) {
      values[i] = {0, 0};
      if (lane + 32 * i < count) values[i] = read_word(words + lane + 32 * i);
    }
#pragma unroll
    for (int i = 0; i < kWordsPerLane; ++i) are_set &= values[i].x != kUnset && values[i].y != kUnset;
  } while (!are_set);
  __syncwarp();
}

// Barriers of a block: chunks that arrived, places that are free again, groups whose words have been read.
template <int kStages, int kRing>
struct Barriers {
  uint64_t full[kStages];
  uint64_t empty[kStages];
  uint64_t ready[kRing];

  // By all threads of the block.
  __device__ void init(int readers) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) {
        barrier_init(full + i, 1);
        barrier_init(empty + i, readers);
      }
      for (int i = 0; i < kRing; ++i) barrier_init(ready + i, 1);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
  }
};

// Whether this warp is the last of `warps` to have written its part of a group.
__device__ __forceinline__ bool is_last_warp(int* arrived, int warps, int lane) {
  int before = 0;
  if (lane == 0) {
    __threadfence_block();
    before = atomicAdd(arrived, 1);
  }
  before = __shfl_sync(kAllLanes, before, 0);
  if (before != warps - 1) return false;
  __threadfence_block();
  __syncwarp();  // a shuffle orders no accesses: what lane 0 wrote is read by the others
  if (lane == 0) *arrived = 0;
  return true;
}
