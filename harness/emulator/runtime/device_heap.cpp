#include "device_heap.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <unordered_map>

#include "checking.h"
#include "cuemu/launch.h"
#include "host_memory.h"

namespace cuemu {
namespace {

// What a block has allocated, and the most that it had allocated at a time.
struct Account {
  std::size_t live = 0;
  std::size_t most = 0;
};
struct Piece {
  std::size_t bytes;
  std::uint64_t launch;
  std::uint32_t block;
};

// On a GPU blocks that fit the device run at the same time, and here mostly one after another. So what a block frees counts
// until as many blocks as fit have allocated after it.
struct Heap {
  std::mutex mutex;
  std::atomic<bool> is_used{false};
  std::size_t limit = 8 << 20;
  std::size_t live = 0;  // bytes of all pieces
  std::size_t kept = 0;  // bytes that blocks have freed and that count still
  std::unordered_map<const void*, Piece> pieces;
  std::uint64_t launch = 0;
  std::uint64_t resident = 1;
  std::unordered_map<std::uint32_t, Account> accounts;
  std::deque<std::uint32_t> order;  // of the blocks' first allocations
};

Heap& heap() {
  static Heap* const all = [] {
    pthread_atfork([] { heap().mutex.lock(); }, [] { heap().mutex.unlock(); }, [] { heap().mutex.unlock(); });
    return new Heap;
  }();
  return *all;
}

std::uint32_t running_block() { return this_worker().block().clock().block(); }

Account& account_of(Heap& all, std::uint32_t block) {
  const auto [found, is_new] = all.accounts.try_emplace(block);
  if (is_new) {
    all.order.push_back(block);
    if (all.order.size() > all.resident) {
      const auto oldest = all.accounts.find(all.order.front());
      all.kept -= oldest->second.most - oldest->second.live;
      all.accounts.erase(oldest);
      all.order.pop_front();
    }
  }
  return all.accounts[block];
}

}  // namespace

void begin_heap_of_launch(std::uint64_t resident) {
  Heap& all = heap();
  const std::lock_guard<std::mutex> lock(all.mutex);
  ++all.launch;
  all.resident = std::max<std::uint64_t>(resident, 1);
  all.kept = 0;
  all.accounts.clear();
  all.order.clear();
}

void set_heap_limit(std::size_t bytes) {
  Heap& all = heap();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.limit = bytes;
}

std::size_t heap_limit() {
  Heap& all = heap();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.limit;
}

bool has_heap_room(std::size_t bytes) {
  if (!is_checking() || !in_kernel()) return true;
  this_worker().end_exploration(Exploration::Left::allocates);  // what is allocated cannot be taken back
  Heap& all = heap();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const Account& own = account_of(all, running_block());
  const std::size_t reused = std::min(own.most - own.live, bytes);
  return bytes <= all.limit && all.live + all.kept + (bytes - reused) <= all.limit;
}

void note_heap_allocation(const void* data, std::size_t bytes) {
  Heap& all = heap();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.is_used.store(true, std::memory_order_relaxed);
  const std::uint32_t block = running_block();
  Account& own = account_of(all, block);
  all.kept -= std::min(own.most - own.live, bytes);
  own.live += bytes;
  own.most = std::max(own.most, own.live);
  all.live += bytes;
  all.pieces[data] = {bytes, all.launch, block};
}

void note_heap_free(const void* data) {
  Heap& all = heap();
  if (data != nullptr && in_kernel()) this_worker().end_exploration(Exploration::Left::allocates);
  if (data == nullptr || !all.is_used.load(std::memory_order_relaxed)) return;
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.pieces.find(data);
  if (found == all.pieces.end()) return;
  const Piece piece = found->second;
  all.pieces.erase(found);
  take_back_host_memory(data);
  all.live -= piece.bytes;
  const auto account = piece.launch == all.launch ? all.accounts.find(piece.block) : all.accounts.end();
  if (account == all.accounts.end()) return;
  account->second.live -= piece.bytes;
  all.kept += piece.bytes;
}

// For the solution's `new`, whose memory the caller allocates.
void* noted_allocation(void* data, std::size_t bytes) {
  if (data == nullptr || !is_checking() || !in_kernel()) return data;
  note_heap_allocation(data, bytes);
  lend_host_memory(data, bytes);
  // What other threads did to memory that they have freed since is no race.
  const char* const begin = static_cast<const char*>(data);
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint32_t)) {
    if (Word* const word = checker().shadow.word(begin + at)) *word = Word{};
  }
  return data;
}

}  // namespace cuemu

extern "C" {

// The functions of checked CUDA sources.
void* cuemu_malloc(std::size_t bytes) {
  return cuemu::has_heap_room(bytes) ? cuemu::noted_allocation(std::malloc(bytes), bytes) : nullptr;
}
void cuemu_free(void* data) {
  cuemu::note_heap_free(data);
  std::free(data);
}
// The linker lets `delete` call these.
void __wrap__ZdlPv(void* data) {
  cuemu::note_heap_free(data);
  ::operator delete(data);
}
void __wrap__ZdlPvm(void* data, std::size_t) { __wrap__ZdlPv(data); }
void __wrap__ZdaPv(void* data) {
  cuemu::note_heap_free(data);
  ::operator delete[](data);
}
void __wrap__ZdaPvm(void* data, std::size_t) { __wrap__ZdaPv(data); }

}  // extern "C"
