// Execution contexts of CUDA threads: a stack each, and the switch from one to another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#if !defined(__x86_64__) && !defined(CUEMU_UCONTEXT)
#define CUEMU_UCONTEXT
#endif
#ifdef CUEMU_UCONTEXT
#include <ucontext.h>
#endif

namespace cuemu {

constexpr std::size_t kStackBytes = 64 * 1024;

// Where a suspended thread continues. It must stay at its address while the thread is suspended.
struct Context {
#ifdef CUEMU_UCONTEXT
  ucontext_t state;
#else
  void* stack_pointer;
#endif
};

// Saves the caller in `from` and continues `to`; returns when something continues `from`.
void switch_context(Context& from, Context& to);

// Lets `context` begin with `entry`, which must not return, on the stack that ends at `stack_top`.
void prepare_context(Context& context, char* stack_top, void (*entry)());

// Stacks, kept for reuse. One pool belongs to one OS thread. A guard page lies below each of the first, which are the
// first to be taken; since guard pages count against a limit of the system, there is none below the others.
class StackPool {
 public:
  // The upper end of a free stack, a multiple of 16; ends the process where the system gives no memory.
  char* take();
  void give_back(char* stack_top) { (is_guarded(stack_top) ? guarded_ : unguarded_).push_back(stack_top); }

 private:
  static bool is_guarded(const char* stack_top) { return reinterpret_cast<std::uintptr_t>(stack_top) % 128 == 0; }
  void grow();
  std::vector<char*> guarded_;
  std::vector<char*> unguarded_;
  std::size_t made_ = 0;
};

}  // namespace cuemu
