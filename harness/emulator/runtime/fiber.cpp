#include "fiber.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "host_memory.h"

#ifndef CUEMU_UCONTEXT
// A switch is an ordinary call for its caller. So it saves only the registers that the System V ABI
// asks a callee to keep.
__asm__(R"(
    .text
    .globl cuemu_switch_stacks
    .hidden cuemu_switch_stacks
    .type cuemu_switch_stacks, @function
cuemu_switch_stacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cuemu_switch_stacks, .-cuemu_switch_stacks
)");
extern "C" void cuemu_switch_stacks(void** saved, void* loaded);
#endif

namespace cuemu {

#ifdef CUEMU_UCONTEXT

void switch_context(Context& from, Context& to) { swapcontext(&from.state, &to.state); }

void prepare_context(Context& context, char* stack_top, void (*entry)()) {
  constexpr std::size_t kUsable = kStackBytes - 8192;  // less than the largest offset of a stack top
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = stack_top - kUsable;
  context.state.uc_stack.ss_size = kUsable;
  context.state.uc_link = nullptr;
  makecontext(&context.state, entry, 0);
}

#else

void switch_context(Context& from, Context& to) { cuemu_switch_stacks(&from.stack_pointer, to.stack_pointer); }

void prepare_context(Context& context, char* stack_top, void (*entry)()) {
  constexpr int kSavedRegisters = 6;
  void** slot = reinterpret_cast<void**>(stack_top);
  // The slot of a caller's return address. It aligns the stack as the ABI requires at a function's
  // entry.
  *--slot = nullptr;
  *--slot = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--slot = nullptr;
  context.stack_pointer = slot;
}

#endif

namespace {

constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kStride = kStackBytes + kGuardBytes;
constexpr std::size_t kBatch = 32;

// Address space for the stacks of all threads that a device holds at a time. It is reserved when the library is loaded:
// that is before the process limits its address space, and the reserve takes no memory.
class StackSpace {
 public:
  StackSpace() {
    void* const memory = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) begin_ = static_cast<char*>(memory);
  }

  // Space for a batch of stacks: of the reserve, else mapped now. Null if the system has none.
  char* take() {
    const std::size_t at = begin_ == nullptr ? kBytes : taken_.fetch_add(kStride * kBatch, std::memory_order_relaxed);
    if (at < kBytes) {
      return mprotect(begin_ + at, kStride * kBatch, PROT_READ | PROT_WRITE) == 0 ? begin_ + at : nullptr;
    }
    void* const memory = mmap(nullptr, kStride * kBatch, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
  }

 private:
  static constexpr std::size_t kThreadsOfDevice = 132 * 2048;
  static constexpr std::size_t kBytes = kStride * kThreadsOfDevice;
  static_assert(kThreadsOfDevice % kBatch == 0);
  char* begin_ = nullptr;
  std::atomic<std::size_t> taken_{0};
};

StackSpace stack_space;

// Stacks that no pool keeps.
struct Shared {
  std::mutex mutex;
  std::vector<char*> stacks;
};

Shared& shared() {
  static auto* const all = new Shared;  // OS threads may outlive static destructors
  return *all;
}

}  // namespace

char* StackPool::take() {
  if (guarded_.empty() && unguarded_.empty()) borrow();
  if (guarded_.empty() && unguarded_.empty()) grow();
  std::vector<char*>& from = guarded_.empty() ? unguarded_ : guarded_;
  char* const top = from.back();
  from.pop_back();
  return top;
}

void StackPool::share() {
  constexpr std::size_t kKept = 4096;
  if (guarded_.size() + unguarded_.size() <= kKept) return;
  const std::lock_guard<std::mutex> lock(shared().mutex);
  for (std::vector<char*>* const own : {&unguarded_, &guarded_}) {
    while (!own->empty() && guarded_.size() + unguarded_.size() > kKept) {
      shared().stacks.push_back(own->back());
      own->pop_back();
    }
  }
}

void StackPool::borrow() {
  const std::lock_guard<std::mutex> lock(shared().mutex);
  for (std::size_t i = 0; i < kBatch && !shared().stacks.empty(); ++i) {
    give_back(shared().stacks.back());
    shared().stacks.pop_back();
  }
}

void StackPool::grow() {
  constexpr std::size_t kMostGuarded = 16384;  // Linux grants 65530 mappings a process; each takes two
  static std::atomic<std::size_t> made_in_process{0};
  char* const begin = stack_space.take();
  if (begin == nullptr) {
    std::fputs("CPU emulator: no memory for the stacks of CUDA threads\n", stderr);
    std::abort();
  }
  note_stacks(begin, kStride * kBatch);
  const bool guard = made_in_process.fetch_add(kBatch, std::memory_order_relaxed) < kMostGuarded;
  for (std::size_t i = 0; i < kBatch; ++i) {
    char* lower_end = begin + i * kStride;
    if (guard && mprotect(lower_end, kGuardBytes, PROT_NONE) != 0) {
      std::fputs("CPU emulator: no guard page for the stack of a CUDA thread\n", stderr);
      std::abort();
    }
    // Stack tops have different offsets in their page. Otherwise the frames of all threads would
    // compete for the same cache sets.
    const std::size_t offset = (made_ + i) % 32 * 128;
    if (guard) guarded_.push_back(lower_end + kStride - offset);
    else unguarded_.push_back(lower_end + kStride - offset - 64);
  }
  made_ += kBatch;
}

}  // namespace cuemu
