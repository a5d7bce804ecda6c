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

// The place where a suspended thread continues. The object must not move while the thread is
// suspended.
struct Context {
#ifdef CUEMU_UCONTEXT
  ucontext_t state;
#else
  void* stack_pointer;
#endif
};

// Saves the caller in `from` and continues `to`. Returns when another context continues `from`.
void switch_context(Context& from, Context& to);

// Makes `context` begin with `entry`, which must not return, on the stack that ends at `stack_top`.
void prepare_context(Context& context, char* stack_top, void (*entry)());

// Stacks, kept for reuse. A pool belongs to one OS thread. The pool hands out the first stacks
// first, and each of them has a guard page below it. The others have none, since guard pages count
// against a system limit.
class StackPool {
 public:
  // Returns the upper end of a free stack, a multiple of 16. Ends the process if the system gives
  // no memory.
  char* take();
  void give_back(char* stack_top) { (is_guarded(stack_top) ? guarded_ : unguarded_).push_back(stack_top); }
  // Leaves all free stacks but some thousands to whichever pool needs them.
  void share();

 private:
  static bool is_guarded(const char* stack_top) { return reinterpret_cast<std::uintptr_t>(stack_top) % 128 == 0; }
  void borrow();
  void grow();
  std::vector<char*> guarded_;
  std::vector<char*> unguarded_;
  std::size_t made_ = 0;
};

}  // namespace cuemu
