#include "async_copy.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "worker.h"

namespace cuemu {
namespace {

constexpr int kMisaligned = 716;  // cudaErrorMisalignedAddress

std::atomic_flag wide_access = ATOMIC_FLAG_INIT;

}  // namespace

void AsyncCopies::begin(unsigned threads) {
  waiting_.clear();
  boxes_.clear();
  committed_.clear();
  current_.has_view = false;
  threads_ = threads;
}

std::uint32_t& AsyncCopies::committed(unsigned thread, bool is_bulk) {
  if (committed_.empty()) committed_.resize(threads_, {0, 0});
  return committed_[thread][is_bulk];
}

void AsyncCopies::commit(unsigned thread, bool is_bulk) { ++committed(thread, is_bulk); }

void AsyncCopies::add(Block& from, unsigned thread, const AsyncCopy& copy, const CopyView* view, const void* code) {
  waiting_.push_back({copy, &from, code, thread, committed(thread, copy.is_bulk), view != nullptr, view == nullptr ? CopyView{} : *view});
  if (copy.box == nullptr) return;
  boxes_.push_back(std::make_unique<TensorBox>(*copy.box));
  waiting_.back().copy.box = boxes_.back().get();
}

bool AsyncCopies::take(std::size_t place, AsyncCopy& copy) {
  copy = waiting_[place].copy;
  current_ = std::move(waiting_[place]);
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(place));
  return true;
}

bool AsyncCopies::take_due(unsigned thread, bool is_bulk, std::uint32_t pending, AsyncCopy& copy) {
  const std::uint32_t all = committed(thread, is_bulk);
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    const Waiting& one = waiting_[i];
    if (one.thread != thread || one.copy.is_bulk != is_bulk || (is_bulk && one.copy.barrier != nullptr)) continue;
    if (pending == ~0u || (one.group < all && all - one.group > pending)) return take(i, copy);
  }
  return false;
}

std::uint32_t AsyncCopies::count_at(char* barrier, unsigned thread, const CopyView* view) {
  std::uint32_t bytes = 0;
  for (Waiting& one : waiting_) {
    if (one.thread != thread || one.copy.is_bulk || one.copy.barrier != nullptr) continue;
    one.copy.barrier = barrier;
    one.has_view = view != nullptr;
    if (view != nullptr) one.view = *view;
    bytes += one.copy.bytes;
  }
  return bytes;
}

bool AsyncCopies::take_of(const char* barrier, AsyncCopy& copy) {
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    if (waiting_[i].copy.barrier == barrier) return take(i, copy);
  }
  return false;
}

bool AsyncCopies::any_of(const char* barrier) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& one) { return one.copy.barrier == barrier; });
}

const AsyncCopies::Waiting* AsyncCopies::in_flight(const char* address, std::size_t bytes, bool writes) const {
  const auto meet = [&](const char* begin, std::size_t size) { return address < begin + size && begin < address + bytes; };
  for (const Waiting& one : waiting_) {
    if (meet(one.copy.to, one.copy.bytes) || (writes && meet(one.copy.from, one.copy.read))) return &one;
  }
  return nullptr;
}

bool begin_async_copy(const AsyncCopy& copy) {
  Worker& worker = this_worker();
  if (!worker.block().delays_copy()) return true;
  Block& block = worker.block();
  // The block whose barrier counts the copy waits for it.
  Block* const there = copy.barrier == nullptr || block.cluster() == nullptr ? nullptr : block.cluster()->owner_of(copy.barrier);
  AsyncCopies& copies = (there == nullptr ? block : *there).copies();
  const unsigned thread = worker.thread().linear;
  if (!is_checking() || !copy.is_bulk) {
    copies.add(block, thread, copy, nullptr);
    return false;
  }
  BlockClock& clock = block.clock();
  clock.use_thread_order();
  const CopyView view = clock.begin_copy(thread);
  copies.add(block, thread, copy, &view, __builtin_return_address(0));
  return false;
}

std::uint32_t count_async_copies(char* barrier) {
  Worker& worker = this_worker();
  Block& block = worker.block();
  const unsigned thread = worker.thread().linear;
  if (!is_checking()) return block.copies().count_at(barrier, thread, nullptr);
  block.clock().use_thread_order();
  CopyView view = block.clock().begin_copy(thread);
  view.is_in_async_proxy = false;
  return block.copies().count_at(barrier, thread, &view);
}

void commit_async_copies(bool is_bulk) {
  Worker& worker = this_worker();
  worker.block().copies().commit(worker.thread().linear, is_bulk);
}

bool take_due_copy(bool is_bulk, std::uint32_t pending, AsyncCopy& copy) {
  Worker& worker = this_worker();
  return worker.block().copies().take_due(worker.thread().linear, is_bulk, pending, copy);
}

bool take_copy_of(const char* barrier, AsyncCopy& copy) {
  return this_worker().block().copies().take_of(barrier, copy);
}

void end_async_copy() { this_worker().block().copies().end_current(); }

bool is_shared(const void* address) {
  if (!in_kernel()) return false;
  Block& block = this_worker().block();
  const char* const byte = static_cast<const char*>(address);
  return block.arena().holds(byte) || (block.cluster() != nullptr && block.cluster()->owner_of(byte) != nullptr);
}

bool is_shared_of_block(const void* address) {
  return in_kernel() && this_worker().block().arena().holds(static_cast<const char*>(address));
}

bool is_local(const void* address) {
  return in_kernel() && this_worker().is_local(static_cast<const char*>(address));
}

void check_alignment(const void* address, unsigned alignment, const char* instruction, int line) {
  const auto value = reinterpret_cast<std::uintptr_t>(address);
  if (value % alignment == 0) return;
  Worker& worker = this_worker();
  worker.fail("misaligned", line, std::string(instruction) + " in " + worker.position() + ": an address or size lies " +
              std::to_string(value % alignment) + " bytes after a multiple of " + std::to_string(alignment),
              "Align the shared array with __align__, and let rows begin at multiples of it.", kMisaligned);
}

WideAccess::WideAccess(bool is_wide) : is_wide_(is_wide) {
  // The checking mode may let other threads run between the halves of an access.
  while (is_wide_ && wide_access.test_and_set(std::memory_order_acquire)) yield();
}

void end_wide_accesses() { wide_access.clear(std::memory_order_release); }

WideAccess::~WideAccess() {
  if (is_wide_) wide_access.clear(std::memory_order_release);
}

}  // namespace cuemu
