// The asynchronous copies of a block that have begun and not happened yet.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuemu/runtime.h"
#include "thread_order.h"

namespace cuemu {

class Block;

// Ends the accesses of more than 8 bytes of threads that never go on.
void end_wide_accesses();

class AsyncCopies {
 public:
  // Forgets the copies of the block before.
  void begin(unsigned threads);

  // Keeps a copy that a thread of a block begins, which need not be the block that waits for it. `view` is that of a bulk
  // copy in the checking mode.
  void add(Block& from, unsigned thread, const AsyncCopy& copy, const CopyView* view, const void* code = nullptr);
  void commit(unsigned thread, bool is_bulk);
  bool take_due(unsigned thread, bool is_bulk, std::uint32_t pending, AsyncCopy& copy);
  // Lets an mbarrier count a thread's copies so far that are in no barrier's count. Returns their bytes. `view` is that of
  // the thread in the checking mode.
  std::uint32_t count_at(char* barrier, unsigned thread, const CopyView* view);
  bool take_of(const char* barrier, AsyncCopy& copy);
  bool any_of(const char* barrier) const;

  struct Waiting {
    AsyncCopy copy;
    Block* from;
    const void* code;  // the place in the kernel where it began
    unsigned thread;
    std::uint32_t group;  // the number of the thread's groups before it
    bool has_view;
    CopyView view;
  };
  // A copy that writes what an access touches, or reads what it writes; null if there is none.
  const Waiting* in_flight(const char* address, std::size_t bytes, bool writes) const;
  // The bulk copy that happens now, in the checking mode; null while there is none.
  const Waiting* current() const { return current_.has_view ? &current_ : nullptr; }
  void end_current() { current_.has_view = false; }

 private:
  std::uint32_t& committed(unsigned thread, bool is_bulk);
  bool take(std::size_t place, AsyncCopy& copy);

  std::vector<std::unique_ptr<TensorBox>> boxes_;  // of copies, also of past ones
  std::vector<Waiting> waiting_;                         // in the order of their begin
  std::vector<std::array<std::uint32_t, 2>> committed_;  // by thread: the groups of plain and of bulk copies, if any
  Waiting current_{};
  unsigned threads_ = 0;
};

}  // namespace cuemu
