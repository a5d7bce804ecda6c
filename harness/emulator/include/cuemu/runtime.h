// The emulator's library for rewritten kernels: launches, shared memory, barriers and warp
// operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vector_types.h"

struct CUstream_st;

namespace cuemu {

struct Config {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes;
  bool cooperative = false;  // all blocks are alive at once and may use the grid's barrier
  dim3 cluster = {};         // blocks that run at the same time and share memory
};

// A kernel. The instances of a template share a name and differ in their code, and two libraries may
// have kernels of one name.
struct Kernel {
  const char* name;
  const void* code = nullptr;     // null if only the launch's arguments tell the instance
  const void* library = nullptr;  // the address of `library_mark` in the kernel's library
  Kernel(const char* name, const void* code = nullptr, const void* library = nullptr)
      : name(name), code(code), library(library) {}
};

using Entry = void (*)(const void* bound);

#ifdef CUEMU_CHECKED
// Notes the part of the host's stack that a launch reads: everything below `end`, and the variables
// to which `call`, an object of `bytes` bytes, refers.
void note_launch_frame(const void* end, const void* call, std::size_t bytes);
// Reports a read through the cache for constant memory of what the launch has written.
void check_constant_read(const void* address, std::size_t bytes);
#endif

// Runs `entry(bound)` once for every CUDA thread and returns when all have ended. For a kernel that
// takes its block's threads (take_threads) it calls the entry once for each block.
void run_launch(const Kernel& kernel, int line, const Config& config, Entry entry, const void* bound);

// The threads of the calling block, for kernels that loop over them since nothing in them waits.
// All of them end with the calling thread. The first thread of a block must call it, before
// anything else.
struct Threads {
  bool is_forward;               // whether they run in the order of their numbers
  const std::uint16_t* numbers;  // the order in which they run
  const uint3* indices;          // by number
  unsigned count;
};
Threads take_threads();

// Returns the calling block's copy of a __shared__ variable. `key` identifies the variable.
void* shared_bytes(const void* key, std::size_t bytes, std::size_t alignment, const char* name, int line);
void* dynamic_shared_bytes(std::size_t alignment);

enum class Barrier : int { plain, count, conjunction, disjunction, grid };
int wait_at_barrier(Barrier kind, int predicate, int line);
void wait_at_grid_barrier(int line);
bool in_cooperative_launch();

enum class WarpOp : int {
  shuffle,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  ballot,
  any,
  all,
  match_any,
  match_all,
  reduce_add,
  reduce_min,
  reduce_max,
  reduce_min_unsigned,
  reduce_max_unsigned,
  reduce_and,
  reduce_or,
  reduce_xor,
  sync,
  active,
  matrix_load,
  matrix_store,
  matrix_multiply,
  warpgroup_multiply,
  warpgroup_wait,
};
// `parameter` and `width` are those of the shuffles. A lane that a shuffle may not read yields the
// fill of new memory.
std::uint64_t warp_operation(WarpOp operation, unsigned mask, std::uint64_t value, int parameter, int width, int line);
// Returns the lanes of the warp that came to the same line. Waits until no lane of the warp can run
// on.
unsigned active_lanes(int line);

// The elements of matrices that the 32 lanes of a warp hold together. In a matrix with `columns`
// columns, element i of lane l is at row (32 i + l) / columns and column (32 i + l) % columns.
enum class Element : int { half, bfloat16, tf32, float32, float64, int8, uint8, int32, e4m3, e5m2 };
constexpr int bytes_of(Element element) {
  switch (element) {
    case Element::half:
    case Element::bfloat16: return 2;
    case Element::float64: return 8;
    case Element::int8:
    case Element::uint8:
    case Element::e4m3:
    case Element::e5m2: return 1;
    default: return 4;
  }
}
struct LaneOfMatrix {
  Element element;
  const void* values;
};
// A lane's part in sum := addend + left x right, with shapes (m, n) := (m, n) + (m, k) x (k, n).
struct MatrixProduct {
  int m, n, k;
  LaneOfMatrix left, right, addend;
  Element sum_element;
  void* sum;
  bool saturate;
  bool is_mma = false;  // whether lanes hold what PTX's mma.sync says
};
void matrix_multiply(const MatrixProduct& own, int line);
// A lane's part in sum := left x right, plus the sum before if it is kept, with shapes (64, n) := (64, k) x (k, n). The four
// warps of a warpgroup hold 16 rows each. The right matrix, and the left one unless registers hold it, lie in shared
// memory, where a descriptor says.
struct WarpgroupProduct {
  int n, k;
  Element left, right, sum;
  void* sums;
  const std::uint32_t* left_registers;  // null if there is a descriptor
  std::uint64_t left_at, right_at;
  bool keeps, saturates, negates_left, negates_right, transposes_left, transposes_right;
  const void* code = nullptr;  // the place in the kernel
  int line = 0;
};
void warpgroup_multiply(const WarpgroupProduct& own, int line);
void fence_registers();
void commit_products();
void wait_for_products(std::uint32_t pending, int line);
// For the checking mode: a variable that products in flight write, and the accesses by which asm statements take it over.
void note_product_registers(const void* begin, std::size_t bytes, int line);
void hand_over_registers(bool begins);

// Waits for the other lanes of the warp, and reports addresses and strides that loads and stores do
// not allow.
void begin_matrix_access(WarpOp operation, const void* address, unsigned alignment, std::size_t stride_bytes, int line);

// The calling block's place in its cluster, and the cluster's place in the grid. Without a cluster each block is one.
struct ClusterPlace {
  uint3 index;  // of the block in the cluster
  dim3 size;    // of the cluster, in blocks
  uint3 id;     // of the cluster in the grid
  dim3 count;   // of clusters
  unsigned rank;
  unsigned blocks;
};
ClusterPlace cluster_place();
bool is_explicit_cluster();
// Arrives at the cluster's barrier without waiting, and waits for all threads of the cluster to have done so.
void arrive_at_cluster_barrier(bool releases, int line);
void wait_at_cluster_barrier(bool acquires, int line);
// Where a shared variable of one block of the cluster lies in another one, and the block that has it.
char* shared_of_rank(char* address, std::uint32_t rank, int line);
std::uint32_t rank_of_shared(const char* address, int line);

// The byte of the cluster's shared memory whose address has these lower 32 bits.
char* shared_pointer(std::uint32_t address);
// Whether an address is in the shared memory of the calling thread's block or cluster.
bool is_shared(const void* address);
bool is_shared_of_block(const void* address);
// Whether an address is a local variable of the calling thread.
bool is_local(const void* address);
// Reports an address that is no multiple of `alignment` bytes.
void check_alignment(const void* address, unsigned alignment, const char* instruction, int line);

// What a tensor map says: the innermost dimension comes first. In an interleaved layout that one holds the channels of a
// slice, which the program does not name: `rank` dimensions follow it.
struct TensorMap {
  std::uint64_t mark;  // of a map that cuTensorMapEncodeTiled has filled
  char* data;
  std::uint64_t strides[6];  // in bytes; the first is the size of an element
  std::uint64_t fill;        // an element beside the tensor
  std::uint32_t last[6];     // index of each dimension
  unsigned short box[6];
  unsigned char steps[6];  // from one element of the box to the next
  unsigned char rank, dimensions, swizzle;
};
struct TensorBox {
  TensorMap map;
  std::int32_t at[6];
  std::uint32_t extents[6];  // elements in shared memory
  std::uint32_t bytes;
};
TensorBox tensor_box(const char* map, const std::int32_t* at, int rank, bool stores, int line);

// An asynchronous copy: reads `read` bytes and writes `bytes`, the rest zeros. In a copy of a box one of the two addresses
// is null, that of the tensor.
struct AsyncCopy {
  char* to;
  const char* from;
  std::uint32_t bytes, read;
  char* barrier;  // the mbarrier that it completes; null for a copy of a group
  bool is_bulk;
  int line;
  const TensorBox* box = nullptr;
};
void read_box(const AsyncCopy& copy, TensorBox& box);
// A copy happens at any moment between its begin and the wait for it: at once in one order of threads, as late as
// possible in another, and at random in the third. Returns whether the caller has to do it at once.
bool begin_async_copy(const AsyncCopy& copy);
// Ends the calling thread's group of copies.
void commit_async_copies(bool is_bulk);
// Lets an mbarrier of the block count the thread's copies so far, as cp.async.mbarrier.arrive does. Returns their bytes, for
// which the barrier has to wait.
std::uint32_t count_async_copies(char* barrier);
// Finds a copy that has to happen before the calling thread goes on, so that at most `pending` groups are left; ~0 for
// all copies, also those in no group. Returns false if there is none.
bool take_due_copy(bool is_bulk, std::uint32_t pending, AsyncCopy& copy);
// Finds a copy of the block that completes an mbarrier.
bool take_copy_of(const char* barrier, AsyncCopy& copy);
// The copy that was taken last has happened.
void end_async_copy();

// An mbarrier is a word of shared memory. Returns the word of one whose phases have so many arrivals.
std::uint64_t new_mbarrier(const void* address, std::uint32_t arrivals, int line);
// Arrives at an mbarrier, and expects bytes of copies (or, below zero, notes those that a copy has brought). Returns the
// word before.
std::uint64_t change_mbarrier(std::uint64_t* word, std::int64_t bytes, std::int64_t arrivals, int line);
// Lets the phases after the current one need an arrival less.
void lower_mbarrier(std::uint64_t* word);
// Whether the phase with this parity has ended. If so, the thread comes behind all that arrived.
bool pass_mbarrier(const std::uint64_t* word, std::uint64_t parity);
// Arrives at one of the block's 16 named barriers, which opens for so many threads, and waits there if asked.
void named_barrier(std::uint32_t number, std::uint32_t threads, bool waits, int line);
// Lets asynchronous copies see the thread's accesses before.
void fence_async_proxy();

// Makes an access of more than 8 bytes a single one for other blocks.
class WideAccess {
 public:
  explicit WideAccess(bool is_wide);
  ~WideAccess();
  WideAccess(const WideAccess&) = delete;
  WideAccess& operator=(const WideAccess&) = delete;

 private:
  bool is_wide_;
};

// A memory fence. A fence of the whole device also publishes earlier writes to other blocks.
void fence(bool of_device);
// A fence behind which a relaxed arrival at the cluster's barrier publishes earlier writes: all, or those of mbarriers.
void fence_cluster(bool of_all);

// Lets the states of cuRAND's generators XORWOW and MRG32k3a go on by count * 2^exponent numbers.
void jump_xorwow(std::uint32_t* state, std::uint64_t count, unsigned exponent);
void jump_mrg32k3a(std::uint32_t* first, std::uint32_t* second, std::uint64_t count, unsigned exponent);

// Lets other threads run, including those of other blocks. For waits that a program writes as a
// loop.
void yield();
// The same behind an operation that others have to make possible.
void tried_in_vain();
// Notes an operation that changed nothing, as in a loop that waits for another thread. Yields from
// time to time.
void changed_nothing();

[[noreturn]] void trap(int line);
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line, const char* function);
bool in_kernel();

}  // namespace cuemu

// The storage of threadIdx. Code inside a loop over threads uses this name, since the loop changes
// it.
extern "C" __thread __attribute__((tls_model("initial-exec"))) uint3 cuemu_thread_index;

// Plain variables, so that a host function may have its own `blockDim`. A switch between threads
// sets threadIdx. For one thread none of these ever changes.
extern const __thread __attribute__((tls_model("initial-exec"))) uint3 threadIdx __asm__("cuemu_thread_index");
extern const __thread __attribute__((tls_model("initial-exec"))) uint3 blockIdx __asm__("cuemu_block_index");
extern const __thread __attribute__((tls_model("initial-exec"))) dim3 blockDim __asm__("cuemu_block_size");
extern const __thread __attribute__((tls_model("initial-exec"))) dim3 gridDim __asm__("cuemu_grid_size");
static const int warpSize = 32;
