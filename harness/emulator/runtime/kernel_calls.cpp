// What a running kernel calls: barriers, warp operations, shared variables, and reports that end the launch.
#include <cstdio>
#include <cstring>

#include "report.h"
#include "worker.h"

namespace cuemu {
namespace {

constexpr int kMisaligned = 716;   // cudaErrorMisalignedAddress
constexpr int kMatrixStride = 16;  // in bytes; loads and stores of matrices need a multiple of it

}  // namespace

int Worker::wait_at_barrier(Barrier kind, int predicate, int line) {
  Block& block = *block_;
  first_yielding_ = nullptr;
  if (!block.arrive_at_barrier(*current_, kind, predicate, line)) {
    report_barrier_mismatch(block, *current_);
    set_sticky_error(kLaunchFailure);
    abandon();
  }
  suspend();
  return block.barrier_result();
}

void Worker::meet_at_named_barrier(unsigned number, unsigned threads, bool waits, int line) {
  Thread& self = *current_;
  decide({Operation::Kind::arrive, block_->place_of_named_barrier(number)});
  self.line = line;
  first_yielding_ = nullptr;
  const unsigned others = block_->arrive_at_named_barrier(self, number, threads, waits);
  if (others != threads) {
    fail("barrier", line, "barrier " + std::to_string(number) + " opens for " + std::to_string(others) +
         " threads, as others say, and for " + std::to_string(threads) + ", as " + position() + " says",
         "Give the same number of threads in all calls of a phase.", kLaunchFailure);
  }
  if (waits) suspend();
  else has_arrived();
}

void Worker::wait_at_grid_barrier(int line) {
  if (!is_cooperative()) {
    fail("launch", line, position() + " calls the grid's sync(), but kernel " + launch_->kernel +
         " was not launched cooperatively", "Launch it with cudaLaunchCooperativeKernel.", kLaunchFailure);
  }
  wait_at_barrier(Barrier::grid, 0, line);
}

std::uint64_t Worker::warp_operation(WarpOp operation, unsigned mask, std::uint64_t value, int parameter, int width,
                                     int line) {
  Thread& self = *current_;
  const unsigned lane = self.linear % kLanes;
  self.operation = static_cast<int>(operation);
  self.mask = mask;
  self.line = line;
  self.value = value;
  self.parameter = parameter;
  self.width = width;
  if ((mask >> lane & 1) == 0) {
    self.state = State::at_warp_operation;
    fail("mask", line, waits_for(self) + ": lane " + std::to_string(lane) + ", " + position() +
         ", takes part, but the mask does not name it", "Give a mask with exactly the lanes that reach the call.",
         kLaunchFailure);
  }
  first_yielding_ = nullptr;
  block_->arrive_at_warp_operation(self);
  suspend();
  return self.result;
}

unsigned Worker::active_lanes(int line) {
  Thread& self = *current_;
  self.operation = static_cast<int>(WarpOp::active);
  self.mask = 0;
  self.line = line;
  block_->ask_active_lanes(self);
  suspend();
  return static_cast<unsigned>(self.result);
}

void Worker::matrix_operation(WarpOp operation, const void* operand, unsigned alignment, int stride_bytes, int line) {
  const auto value = reinterpret_cast<std::uintptr_t>(operand);
  const auto outcome = static_cast<MatrixOutcome>(warp_operation(operation, ~0u, value, stride_bytes, 32, line));
  const std::string name = warp_operation_name(operation);
  if (outcome == MatrixOutcome::lanes_missing) {
    fail("divergence", line,
         name + " in " + position() + " needs all 32 lanes of the warp; some have ended or never were",
         "Launch whole warps, and let all lanes reach the call.", kLaunchFailure);
  }
  if (outcome == MatrixOutcome::lanes_differ) {
    fail("divergence", line, name + " in " + position() + ": the lanes of the warp give different arguments",
         "Compute the pointer and the stride from the warp's number, not from the thread's.", kLaunchFailure);
  }
  if (value % alignment != 0 || stride_bytes % kMatrixStride != 0) {
    fail("misaligned", line, name + " in " + position() + ": the pointer lies " + std::to_string(value % alignment) +
         " bytes after a multiple of " + std::to_string(alignment) + ", and the stride is " +
         std::to_string(stride_bytes) + " bytes",
         "Give a pointer that is a multiple of 32 bytes (16 for 8-bit integers) and a stride that is a multiple of 16 "
         "bytes; align shared arrays with __align__(32).", kMisaligned);
  }
}

void* Worker::shared_bytes(const void* key, std::size_t bytes, std::size_t alignment, const char* name, int line) {
  SharedArena& arena = block_->arena();
  const std::size_t before = arena.static_bytes();
  void* const address = arena.slot(key, bytes, alignment, name, line);
  if (block_->cluster() != nullptr && arena.static_bytes() != before) {
    for (std::size_t i = 0; i < begun_; ++i) blocks_[i]->arena().slot(key, bytes, alignment, name, line);
  }
  const std::size_t used = arena.static_bytes();
  if (address == nullptr || (used != before && used > kDefaultSharedLimit)) {
    fail("launch", line, std::string("the __shared__ variables of kernel ") + launch_->kernel + " up to " + name +
         " take " + std::to_string(address == nullptr ? used + bytes : used) + " bytes; a kernel may declare " +
         std::to_string(kDefaultSharedLimit), "Use less, or dynamic shared memory with cudaFuncSetAttribute.",
         kInvalidValue);
  }
  if (used != before && used + launch_->config.shared_bytes > launch_->shared_limit) {
    const bool opted_in = launch_->shared_limit > kDefaultSharedLimit;
    fail("launch", launch_->line, std::string("invalid argument: kernel ") + launch_->kernel + " declares " +
         std::to_string(used) + " bytes of shared memory and the launch adds " +
         std::to_string(launch_->config.shared_bytes) + "; together they may take " +
         std::to_string(launch_->shared_limit),
         opted_in ? "Use less: this is the most that a block of the device may have."
                  : "Use less, or raise the limit of the dynamic part with cudaFuncSetAttribute(kernel, "
                    "cudaFuncAttributeMaxDynamicSharedMemorySize, bytes).",
         kInvalidValue);
  }
  return address;
}

std::string Worker::position() const {
  return "thread " + coordinates(thread_index()) + " of block " + coordinates(blockIdx);
}

void Worker::fail(const char* kind, int line, const std::string& message, const char* remedy, int error) {
  add_report({kind, launch_->kernel, line, message, remedy,
              {{thread_index(), blockIdx, line, message}}});
  if (error != 0) set_sticky_error(error);
  abandon();
}

void Worker::fail_at(const char* kind, const void* code, const std::string& message, const char* what,
                     const char* remedy) {
  add_report({kind, launch_->kernel, 0, message, remedy, {{thread_index(), blockIdx, 0, what, code}}});
  set_sticky_error(kLaunchFailure);
  abandon();
}

Threads take_threads() { return kernel_worker().take_threads(); }

void* shared_bytes(const void* key, std::size_t bytes, std::size_t alignment, const char* name, int line) {
  return kernel_worker().shared_bytes(key, bytes, alignment, name, line);
}

void* dynamic_shared_bytes(std::size_t) { return kernel_worker().block().arena().dynamic(); }

int wait_at_barrier(Barrier kind, int predicate, int line) {
  return kernel_worker().wait_at_barrier(kind, predicate, line);
}

void wait_at_grid_barrier(int line) { kernel_worker().wait_at_grid_barrier(line); }

bool in_cooperative_launch() { return kernel_worker().is_cooperative(); }

std::uint64_t warp_operation(WarpOp operation, unsigned mask, std::uint64_t value, int parameter, int width,
                             int line) {
  return kernel_worker().warp_operation(operation, mask, value, parameter, width, line);
}

void matrix_multiply(const MatrixProduct& own, int line) {
  kernel_worker().matrix_operation(WarpOp::matrix_multiply, &own, 1, 0, line);
}

void begin_matrix_access(WarpOp operation, const void* address, unsigned alignment, std::size_t stride_bytes,
                         int line) {
  kernel_worker().matrix_operation(operation, address, alignment, static_cast<int>(stride_bytes), line);
}

unsigned active_lanes(int line) { return kernel_worker().active_lanes(line); }

void exceeds_launch_bounds(unsigned threads) {
  Worker& worker = kernel_worker();
  const Launch& launch = worker.block().launch();
  const std::string most = std::to_string(threads);
  worker.fail("launch", launch.line,
              "invalid argument: kernel " + std::string(launch.kernel) + " was not run: a block of " +
                  coordinates(launch.config.block) + " threads; the kernel's __launch_bounds__ allow " + most,
              ("Launch at most " + most + " threads in a block, or raise the kernel's __launch_bounds__.").c_str(),
              kInvalidValue);
}

void trap(int line) {
  Worker& worker = kernel_worker();
  worker.fail("trap", line, worker.position() + " executed __trap()",
              "The kernel's own check stopped it; see the condition that leads to __trap().", kLaunchFailure);
}

void assertion_failed(const char* expression, const char* file, int line, const char* function) {
  constexpr int kAssert = 710;  // cudaErrorAssert
  Worker& worker = kernel_worker();
  const std::string place = worker.position();
  // The body of a kernel may lie in a lambda (cuemu/threads.h).
  const char* const named = std::strcmp(function, "operator()") == 0 ? worker.block().launch().kernel : function;
  std::fprintf(stderr, "%s:%d: %s: %s: Assertion `%s` failed.\n", file, line, named, place.c_str(), expression);
  worker.fail("assert", line, "assertion `" + std::string(expression) + "` failed in " + place,
              "The kernel's own assertion does not hold for this input.", kAssert);
}

}  // namespace cuemu
