#include "shared_arena.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "guard.h"
#include "host_memory.h"

namespace cuemu {
namespace {

constexpr std::size_t kZoneBytes = 1024;          // after each variable
constexpr std::size_t kDynamicZoneBytes = 4096;   // on both sides of the dynamic part
constexpr std::size_t kStaticArenaBytes = 1 << 18;  // many small variables with their red zones
constexpr std::size_t kDynamicArenaBytes = 256 * 1024;
constexpr std::size_t kMostAlignment = 1024;

// The memory of arenas that have ended, for the next ones.
struct Unused {
  std::mutex mutex;
  std::vector<char*> memory;
};

Unused& unused() {
  static auto* const all = new Unused;  // OS threads may outlive static destructors
  return *all;
}

char* arena_memory() {
  {
    const std::lock_guard<std::mutex> lock(unused().mutex);
    if (!unused().memory.empty()) {
      char* const memory = unused().memory.back();
      unused().memory.pop_back();
      return memory;
    }
  }
  void* memory = mmap(nullptr, kStaticArenaBytes + kDynamicArenaBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::fputs("CPU emulator: no memory for shared memory\n", stderr);
    std::abort();
  }
  note_own_memory(memory, kStaticArenaBytes + kDynamicArenaBytes);
  return static_cast<char*>(memory);
}

}  // namespace

SharedArena::~SharedArena() {
  const std::lock_guard<std::mutex> lock(unused().mutex);
  unused().memory.push_back(memory_);
}

SharedArena::SharedArena() : memory_(arena_memory()) {
  end_ = memory_ + kStaticArenaBytes + kDynamicArenaBytes;
  dynamic_ = end_ - kDynamicZoneBytes;
  free_ = memory_ + kZoneBytes;
}

void SharedArena::begin_launch(std::size_t dynamic_bytes) {
  slots_.clear();
  static_bytes_ = 0;
  free_ = memory_ + kZoneBytes;
  fill_red_zone(memory_, kZoneBytes);
  dynamic_bytes_ = dynamic_bytes;
  // At the arena's end, so that the lower 18 bits of its addresses are not those of variables.
  dynamic_ = end_ - kDynamicZoneBytes - (dynamic_bytes + kDynamicZoneBytes - 1) / kDynamicZoneBytes * kDynamicZoneBytes;
  dynamic_damaged_ = is_dynamic_known_ = false;
  fill_red_zone(dynamic_ - kDynamicZoneBytes, kDynamicZoneBytes);
  fill_red_zone(dynamic_ + dynamic_bytes_, kDynamicZoneBytes);
}

void SharedArena::begin_block() {
  for (const Slot& slot : slots_) fill_poison(slot.address, slot.bytes);
  if (dynamic_bytes_ > 0) fill_poison(dynamic_, dynamic_bytes_);
}

void* SharedArena::slot(const void* key, std::size_t bytes, std::size_t alignment, const char* name, int line) {
  for (const Slot& slot : slots_) {
    if (slot.key == key) return slot.address;
  }
  if (alignment < 1) alignment = 1;
  if (alignment > kMostAlignment) return nullptr;
  const std::uintptr_t unaligned = reinterpret_cast<std::uintptr_t>(free_);
  char* const address = reinterpret_cast<char*>((unaligned + alignment - 1) / alignment * alignment);
  const std::size_t left = static_cast<std::size_t>(memory_ + kStaticArenaBytes - address);
  if (left < kZoneBytes || bytes > left - kZoneBytes) return nullptr;
  fill_poison(address, bytes);
  fill_red_zone(address + bytes, kZoneBytes);
  // The few bytes that alignment leaves before the variable stay unchecked.
  free_ = address + bytes + kZoneBytes;
  static_bytes_ += bytes;
  slots_.push_back({key, address, bytes, name, line, false});
  return address;
}

void SharedArena::lay_out_as(const SharedArena& other) {
  if (this == &other) return;
  const std::ptrdiff_t distance = memory_ - other.memory_;
  slots_ = other.slots_;
  for (Slot& slot : slots_) {
    slot.address += distance;
    slot.damaged = false;
    fill_red_zone(slot.address + slot.bytes, kZoneBytes);
  }
  free_ = other.free_ + distance;
  static_bytes_ = other.static_bytes_;
}

SharedArena::Place SharedArena::place(const char* address, std::size_t bytes) const {
  const auto made = [&](const char* data, std::size_t size, const char* name) {
    return Place{data, size, name, address >= data && address + bytes <= data + size};
  };
  if (address >= dynamic_ - kDynamicZoneBytes) return made(dynamic_, dynamic_bytes_, nullptr);
  if (last_place_ < slots_.size()) {
    const Slot& last = slots_[last_place_];
    if (address >= last.address && address + bytes <= last.address + last.bytes) {
      return {last.address, last.bytes, last.name, true};
    }
  }
  const Slot* nearest = nullptr;
  for (const Slot& slot : slots_) {
    if (address + bytes > slot.address && address < slot.address + slot.bytes) {
      nearest = &slot;
      last_place_ = static_cast<std::size_t>(&slot - slots_.data());
      break;
    }
    if (nearest == nullptr || slot.address <= address) nearest = &slot;
  }
  if (nearest == nullptr) return {memory_, 0, "", false};
  return made(nearest->address, nearest->bytes, nearest->name);
}

std::vector<SharedArena::Damage> SharedArena::damage() {
  std::vector<Damage> found;
  if (slots_.empty() && !is_dynamic_known_) return found;  // no thread has an address of the arena
  if (!slots_.empty() && damage_in(memory_, kZoneBytes) != nullptr) {
    fill_red_zone(memory_, kZoneBytes);
    if (!slots_.front().damaged) {
      found.push_back({slots_.front().line, std::string("before the start of the __shared__ variable ") +
                                                slots_.front().name});
    }
    slots_.front().damaged = true;
  }
  for (Slot& slot : slots_) {
    char* const zone = slot.address + slot.bytes;
    char* const first = damage_in(zone, kZoneBytes);
    if (first == nullptr) continue;
    fill_red_zone(zone, kZoneBytes);
    if (!slot.damaged) {
      found.push_back({slot.line, std::string("past the end of the __shared__ variable ") + slot.name + " (" +
                                      std::to_string(slot.bytes) + " bytes, declared at line " +
                                      std::to_string(slot.line) + "), first at byte offset " +
                                      std::to_string(first - slot.address)});
    }
    slot.damaged = true;
  }
  char* const before = dynamic_ - kDynamicZoneBytes;
  char* const after = dynamic_ + dynamic_bytes_;
  char* const first = damage_in(after, kDynamicZoneBytes);
  const bool damaged_before = damage_in(before, kDynamicZoneBytes) != nullptr;
  if (damaged_before) fill_red_zone(before, kDynamicZoneBytes);
  if (first != nullptr) {
    if (!dynamic_damaged_) {
      found.push_back({0, "past the end of the dynamic shared memory (the launch gives it " +
                              std::to_string(dynamic_bytes_) + " bytes), first at byte offset " +
                              std::to_string(first - dynamic_)});
    }
    fill_red_zone(after, kDynamicZoneBytes);
  } else if (damaged_before && !dynamic_damaged_) {
    found.push_back({0, "before the start of the dynamic shared memory"});
  }
  dynamic_damaged_ = dynamic_damaged_ || damaged_before || first != nullptr;
  return found;
}

}  // namespace cuemu
