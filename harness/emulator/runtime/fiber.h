// Execution contexts of CUDA threads: a stack each, and the switch from one to another.
#pragma once

#include <cstddef>
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

// Stacks with a guard page below each, kept for reuse. One pool belongs to one OS thread.
class StackPool {
 public:
  // The upper end of a free stack, a multiple of 16; ends the process where the system gives no memory.
  char* take();
  void give_back(char* stack_top) { free_.push_back(stack_top); }

 private:
  void grow();
  std::vector<char*> free_;
  std::size_t made_ = 0;
};

}  // namespace cuemu
