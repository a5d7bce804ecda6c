// The checking mode's part that knows where memory begins and ends.
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

#include "checking.h"
#include "host_memory.h"
#include "variables.h"

namespace cuemu {
namespace {

// The part of the host's stack that the current launch reads: its arguments, and the variables of
// its call.
struct LaunchFrame {
  const char* end = nullptr;
  const char* const* captured = nullptr;
  std::size_t bytes = 0;
  bool holds(const char* address) const {
    const char* const call = reinterpret_cast<const char*>(captured);
    if (address < end || (address >= call && address < call + bytes)) return true;
    for (std::size_t i = 0; i < bytes / sizeof(char*); ++i) {
      if (address >= captured[i] && address < captured[i] + sizeof(char*)) return true;
    }
    return false;
  }
};
thread_local LaunchFrame launch_frame;

bool is_mapped(const char* address) {
  static thread_local std::uintptr_t recent[64] = {};
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(address) / 4096;
  if (recent[page % 64] == page && page != 0) return true;
  unsigned char vector = 0;
  if (page == 0 || mincore(reinterpret_cast<void*>(page * 4096), 1, &vector) != 0) return false;
  recent[page % 64] = page;
  return true;
}

}  // namespace

Extent extent_of(const char* address) {
  Checker& all = checker();
  for (const Extent& one : all.known) {
    if (address >= one.data && static_cast<std::size_t>(address - one.data) < one.bytes) return one;
  }
  Extent found = extent_for_kernel(address);
  if (found.data == nullptr) found = variable_at(address);
  if (found.data != nullptr) all.known[all.next_known++ % 4] = found;
  return found;
}

void tell_bounds(const Running& at, const Touch& touch, const std::string& where, const char* remedy) {
  Checker& all = checker();
  all.bounds_told = true;
  if (!is_new('b', touch.code, nullptr)) return;
  tell("out-of-bounds", at,
       thread_words(at.index(), at.block.index()) + " " + verb(touch) + " " + size_words(touch.bytes) + " " + where +
           " in line {0}",
       remedy, touch.code, verb(touch), false);
}

void tell_bounds(const Running& at, const Touch& touch, const std::string& where) {
  tell_bounds(at, touch, where,
              "Bound every index by the size of what it indexes; the last block of a grid often has threads beyond the end.");
}

std::string beside(const Touch& touch, const char* data, std::size_t bytes, const std::string& what) {
  const std::ptrdiff_t offset = touch.address - data;
  const std::string of = " of " + what + " of " + size_words(bytes);
  if (offset < 0) return std::to_string(-offset) + " bytes before the start" + of;
  return "at byte offset " + std::to_string(offset) + ", past the end" + of;
}

// Reports an access to memory that only the host may access. Returns false.
bool tell_host_memory(const Running& at, const Touch& touch, const char* whose) {
  tell_bounds(at, touch, std::string("of the host's memory (") + whose + ")",
              "Pass the values by value, or copy them to the device before the launch, with cudaMemcpy or .to(device).");
  return false;
}

// Reports an access to another thread's local variable. Returns false.
bool tell_local_variable(const Running& at, const Touch& touch) {
  std::string whose = "another thread";
  at.worker.for_each_begun([&](const Block& block, const Thread& thread) {
    if (thread.holds_local(touch.address)) whose = thread_words(index_in(thread.linear, checker().config.block), block.index());
  });
  tell_bounds(at, touch, "of a local variable of " + whose,
              "Pass values through __shared__ memory or shuffles: a pointer to a local variable is valid in its own thread alone.");
  return false;
}

bool is_in_bounds(const Running& at, const Touch& touch) {
  Checker& all = checker();
  if (touch.address >= all.host_stack && touch.address < all.host_stack_end) {
    if (launch_frame.holds(touch.address)) return false;
    return tell_host_memory(at, touch, "a variable of a host function");
  }
  const Extent extent = extent_of(touch.address);
  if (extent.data != nullptr) {
    const std::ptrdiff_t offset = touch.address - extent.data;
    if (extent.is_freed) {
      tell_bounds(at, touch, "of " + with_article(extent.what) + " of " + size_words(extent.bytes) + " that was freed,");
      return false;
    }
    if (offset >= 0 && static_cast<std::size_t>(offset) + touch.bytes <= extent.bytes) return true;
    tell_bounds(at, touch, beside(touch, extent.data, extent.bytes, with_article(extent.what)));
    return false;
  }
  if (is_mapped(touch.address) && is_mapped(touch.address + touch.bytes - 1)) {
    const Owner owner = owner_of_memory(touch.address);
    if (owner == Owner::everybody) return true;
    if (owner == Owner::thread) return tell_local_variable(at, touch);
    return tell_host_memory(at, touch, "from malloc, new, a container such as std::vector, or a tensor's sizes");
  }
  char address[32];
  std::snprintf(address, sizeof address, "0x%zx", reinterpret_cast<std::size_t>(touch.address));
  const std::string message = thread_words(at.index(), at.block.index()) + " " + verb(touch) + " " +
                              size_words(touch.bytes) + " at address " + address +
                              ", where there is no memory, in line {0}";
  at.worker.fail_at("out-of-bounds", touch.code, message, verb(touch),
                        "Check the pointer that the host passes, and every index, against the size of the tensor.");
}

bool is_alive(const Running& at, const Touch& touch, const Block& owner) {
  const bool has_ended = owner.live() == 0;
  if (!has_ended && (at.copy != nullptr || at.clock.knows_of(owner.clock().block(), at.thread))) return true;
  if (!is_new('e', touch.code, at.line)) return false;
  tell("out-of-bounds", at,
       thread_words(at.index(), at.block.index()) + " " + verb(touch) + " " + size_words(touch.bytes) +
           " of the shared memory of block " + coordinates(owner.index()) +
           (has_ended ? ", which has ended," : ", which may not have begun,") + " in line {0}",
       has_ended ? "Let all blocks meet at the cluster's barrier before one of them ends."
                 : "Let all blocks meet at the cluster's barrier before one accesses another's shared memory.",
       touch.code, verb(touch), false);
  return false;
}

// Whether an access of the host was reported before; from now on it was.
bool has_told_host(const void* code) {
  static std::mutex mutex;
  static std::set<const void*> told;
  const std::lock_guard<std::mutex> lock(mutex);
  return !told.insert(code).second;
}

void check_host_access(const Touch& touch) {
  if (!may_be_on_device(touch.address)) return;
  const Extent extent = device_memory_at(touch.address);
  if (extent.data == nullptr || has_told_host(touch.code)) return;
  add_report({"out-of-bounds", "", 0,
              std::string("host code ") + verb(touch) + " " + size_words(touch.bytes) + " of " + with_article(extent.what) + " of " +
                  size_words(extent.bytes) + ", which is in the device's memory, in line {0}",
              "Let a kernel access it, or copy it to the host first, by .item(), .cpu() or cudaMemcpy.",
              {{{}, {}, 0, verb(touch), touch.code}}});
}

void note_launch_frame(const void* end, const void* call, std::size_t bytes) {
  LaunchFrame& frame = launch_frame;
  frame.end = static_cast<const char*>(end);
  frame.captured = static_cast<const char* const*>(call);
  frame.bytes = bytes;
}

}  // namespace cuemu
