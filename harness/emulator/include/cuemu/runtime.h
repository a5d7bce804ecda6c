// The emulator's library as rewritten kernels see it: launches, shared memory, barriers and warp operations.
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
};

using Entry = void (*)(const void* bound);

#ifdef CUEMU_CHECKED
// What a launch reads of the host's stack: what lies below `end`, and the variables that `call`, of so many bytes,
// refers to.
void note_launch_frame(const void* end, const void* call, std::size_t bytes);
#endif

// Runs `entry(bound)` once for every CUDA thread and returns when all have ended. A kernel that takes its block's
// threads (take_threads) is entered once a block.
void run_launch(const char* kernel, int line, const Config& config, Entry entry, const void* bound);

// The threads of the calling block, which all end with the calling one: for kernels that loop over them by themselves,
// since nothing in them waits. Must be called by the first thread of a block, before anything else.
struct Threads {
  bool is_forward;               // whether they are to run in the order of their numbers
  const std::uint16_t* numbers;  // in the order in which they are to run
  const uint3* indices;          // by number
  unsigned count;
};
Threads take_threads();

// The calling block's copy of a __shared__ variable; `key` tells variables apart.
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
};
// `parameter` and `width` are those of the shuffles. Lanes that a shuffle may not read yield what new memory holds.
std::uint64_t warp_operation(WarpOp operation, unsigned mask, std::uint64_t value, int parameter, int width, int line);
// The lanes of the warp that came to the same line; waits until no lane of the warp can run on.
unsigned active_lanes(int line);

// Matrices that the 32 lanes of a warp hold together: of one with `columns` columns, element i of lane l is the one at
// row (32 i + l) / columns and column (32 i + l) % columns.
enum class Element : int { half, bfloat16, tf32, float32, float64, int8, uint8, int32 };
struct LaneOfMatrix {
  Element element;
  const void* values;
};
// A lane's part in sum := addend + left x right, (m, n) := (m, n) + (m, k) x (k, n).
struct MatrixProduct {
  int m, n, k;
  LaneOfMatrix left, right, addend;
  Element sum_element;
  void* sum;
  bool saturate;
};
void matrix_multiply(const MatrixProduct& own, int line);
// Waits for the other lanes of the warp, and reports what may not be loaded from or stored to in this form.
void begin_matrix_access(WarpOp operation, const void* address, unsigned alignment, std::size_t stride_bytes, int line);

// A memory fence; one of the whole device also publishes what came before it to other blocks.
void fence(bool of_device);

// Lets other threads run, those of other blocks too; for waits that a program spells as a loop.
void yield();
// An operation that changed nothing, as in a loop that waits for another thread: yields from time to time.
void changed_nothing();

[[noreturn]] void trap(int line);
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line, const char* function);
bool in_kernel();

}  // namespace cuemu

// threadIdx below for code that may stand in a loop over threads, where it changes.
extern "C" __thread __attribute__((tls_model("initial-exec"))) uint3 cuemu_thread_index;

// Plain variables, so that a host function may have its own `blockDim`. A switch between threads sets threadIdx; for
// one thread none of these ever changes.
extern const __thread __attribute__((tls_model("initial-exec"))) uint3 threadIdx __asm__("cuemu_thread_index");
extern const __thread __attribute__((tls_model("initial-exec"))) uint3 blockIdx __asm__("cuemu_block_index");
extern const __thread __attribute__((tls_model("initial-exec"))) dim3 blockDim __asm__("cuemu_block_size");
extern const __thread __attribute__((tls_model("initial-exec"))) dim3 gridDim __asm__("cuemu_grid_size");
static const int warpSize = 32;
