#include "guard.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "checker.h"
#include "report.h"

namespace cuemu {
namespace {

constexpr std::size_t kZoneBytes = 4096;
constexpr std::uintptr_t kPageBytes = 4096;
constexpr std::size_t kKeptBytes = 256 << 20;   // of freed memory, in the checking mode
constexpr std::size_t kKnownZoneBytes = 2048;  // half of the guard bands that others leave between their tensors
constexpr std::size_t kAlignment = 256;

struct Allocation {
  char* raw;
  std::size_t bytes;
  std::size_t zone_after_bytes;
  const char* what;
  bool is_of_device = false;
  bool is_of_host = false;
};

// Memory that others allocated, with their own guard bands.
struct Known {
  Extent extent;
  bool is_of_host = false;
};

struct Registry {
  std::mutex mutex;
  std::atomic<std::uint64_t> version{1};    // counts what may give memory to the device
  std::map<char*, Allocation> allocations;  // by the address of their data
  std::map<char*, Allocation> freed;        // freed, but still kept
  std::deque<char*> freed_order;            // oldest first
  std::size_t freed_bytes = 0;
  std::vector<Known> known;
  std::set<std::string> names;              // the names of known allocations, never freed
  std::string last_kernel;
};

// NaN in every floating-point type, and -1 in signed integers.
TwoBytes poison_in_use = {{0xFF, 0xFF}};
// 0xFFF5: another NaN as half, bfloat16, float and double
TwoBytes zones_in_use = {{0xF5, 0xFF}};

Registry& registry() {
  static Registry* const all = [] {
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] { registry().mutex.unlock(); });
    return new Registry;
  }();
  return *all;
}

void repeat(TwoBytes pattern, unsigned char* to, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = pattern.bytes[i % 2];
}

// Returns the zones' pattern for an even address, of twice a zone's length.
unsigned char* pattern() {
  constexpr std::size_t kBytes = 2 * kZoneBytes + 2;
  static unsigned char* const filled = [] {
    unsigned char* bytes = static_cast<unsigned char*>(std::malloc(kBytes));
    repeat(zones_in_use, bytes, kBytes);
    return bytes;
  }();
  return filled;
}

void report_damage(const char* kernel, int line, const std::string& where, const char* noticed) {
  Report report;
  report.kind = "out-of-bounds";
  report.kernel = kernel;
  report.line = line;
  report.message = std::string("kernel ") + (*kernel ? kernel : "(none launched)") + " wrote " + where + noticed;
  report.remedy = "Bound every index by the tensor's size; the last block of a grid often has threads beyond the end.";
  add_report(std::move(report));
}

void check(char* data, const Allocation& allocation, const char* kernel, int line, const char* noticed,
           bool is_told = false) {
  const std::string of = std::string(" of a ") + allocation.what + " of " + std::to_string(allocation.bytes) + " bytes";
  char* const zone_before = data - kZoneBytes;
  if (char* end = damage_end_in(zone_before, kZoneBytes)) {
    char* const first = damage_in(zone_before, kZoneBytes);
    if (!is_told) {
      report_damage(kernel, line, std::to_string(data - end + 1) + " to " + std::to_string(data - first) +
                    " bytes before the start" + of, noticed);
    }
    fill_red_zone(zone_before, kZoneBytes);
  }
  char* const zone_after = data + allocation.bytes;
  if (char* first = damage_in(zone_after, allocation.zone_after_bytes)) {
    char* const end = damage_end_in(zone_after, allocation.zone_after_bytes);
    if (!is_told) {
      report_damage(kernel, line, "past the end" + of + ", at byte offsets " + std::to_string(first - data) + " to " +
                    std::to_string(end - data - 1), noticed);
    }
    fill_red_zone(zone_after, allocation.zone_after_bytes);
  }
}

void keep_freed(Registry& all, char* data, const Allocation& allocation) {
  all.freed.emplace(data, allocation);
  all.freed_order.push_back(data);
  all.freed_bytes += allocation.bytes;
  while (all.freed_bytes > kKeptBytes) {
    const auto oldest = all.freed.find(all.freed_order.front());
    all.freed_order.pop_front();
    all.freed_bytes -= oldest->second.bytes;
    std::free(oldest->second.raw);
    all.freed.erase(oldest);
  }
}

// Returns the allocation in or beside which an address lies; null if there is none.
std::pair<char* const, Allocation>* find(std::map<char*, Allocation>& allocations, const char* address) {
  const auto after = allocations.upper_bound(const_cast<char*>(address));
  if (after != allocations.begin()) {
    const auto before = std::prev(after);
    const std::size_t offset = static_cast<std::size_t>(address - before->first);
    if (offset < before->second.bytes + before->second.zone_after_bytes) return &*before;
  }
  return after == allocations.end() || address < after->second.raw ? nullptr : &*after;
}

Extent extent_at(const char* address, bool by_kernel) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (auto* found = find(all.allocations, address)) {
    if (by_kernel && !found->second.is_of_device) {
      found->second.is_of_device = true;
      ++all.version;
    }
    return {found->first, found->second.bytes, found->second.what, false};
  }
  if (const auto* found = find(all.freed, address)) return {found->first, found->second.bytes, found->second.what, true};
  for (const Known& one : all.known) {
    const Extent& extent = one.extent;
    if (address >= extent.data - kKnownZoneBytes && address < extent.data + extent.bytes + kKnownZoneBytes) return extent;
  }
  return {};
}

bool holds(const char* data, std::size_t bytes, const char* address) {
  return address >= data && static_cast<std::size_t>(address - data) < bytes;
}

}  // namespace

void set_fill(TwoBytes memory, TwoBytes zones) {
  poison_in_use = memory;
  if (std::memcmp(zones.bytes, zones_in_use.bytes, sizeof zones.bytes) == 0) return;
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& [data, allocation] : all.allocations) {
    check(data, allocation, all.last_kernel.c_str(), 0, " (noticed later; the kernel is the last one launched)");
  }
  zones_in_use = zones;
  repeat(zones, pattern(), 2 * kZoneBytes + 2);
  for (const auto& [data, allocation] : all.allocations) {
    fill_red_zone(data - kZoneBytes, kZoneBytes);
    fill_red_zone(data + allocation.bytes, allocation.zone_after_bytes);
  }
}

void fill_poison(char* begin, std::size_t bytes) {
  const TwoBytes poison = poison_in_use;
  if (poison.bytes[0] == poison.bytes[1]) {
    std::memset(begin, poison.bytes[0], bytes);
    return;
  }
  const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(begin);
  for (std::size_t i = 0; i < bytes; ++i) begin[i] = static_cast<char>(poison.bytes[(from + i) % 2]);
}

bool is_poison(const char* begin, std::size_t bytes) {
  const TwoBytes poison = poison_in_use;
  const std::uintptr_t from = reinterpret_cast<std::uintptr_t>(begin);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (static_cast<unsigned char>(begin[i]) != poison.bytes[(from + i) % 2]) return false;
  }
  return true;
}

void fill_red_zone(char* begin, std::size_t bytes) {
  const std::size_t phase = reinterpret_cast<std::uintptr_t>(begin) % 2;
  while (bytes > 0) {
    const std::size_t part = bytes < 2 * kZoneBytes ? bytes : 2 * kZoneBytes;
    std::memcpy(begin, pattern() + phase, part);
    begin += part;
    bytes -= part;
  }
}

char* damage_in(char* begin, std::size_t bytes) {
  const unsigned char* expected = pattern() + reinterpret_cast<std::uintptr_t>(begin) % 2;
  if (std::memcmp(begin, expected, bytes) == 0) return nullptr;
  while (static_cast<unsigned char>(*begin) == *expected) ++begin, ++expected;
  return begin;
}

char* damage_end_in(char* begin, std::size_t bytes) {
  if (damage_in(begin, bytes) == nullptr) return nullptr;
  const unsigned char* expected = pattern() + reinterpret_cast<std::uintptr_t>(begin) % 2;
  while (static_cast<unsigned char>(begin[bytes - 1]) == expected[bytes - 1]) --bytes;
  return begin + bytes;
}

void* guarded_allocate(std::size_t bytes, const char* what) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (rounded < bytes || rounded + 2 * kZoneBytes < rounded) return nullptr;
  void* raw = nullptr;
  if (posix_memalign(&raw, kAlignment, rounded + 2 * kZoneBytes) != 0) return nullptr;
  char* const data = static_cast<char*>(raw) + kZoneBytes;
  const Allocation allocation = {static_cast<char*>(raw), bytes, rounded - bytes + kZoneBytes, what};
  fill_red_zone(allocation.raw, kZoneBytes);
  fill_poison(data, bytes);
  fill_red_zone(data + bytes, allocation.zone_after_bytes);
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.allocations.emplace(data, allocation);
  ++all.version;
  return data;
}

bool guarded_free(void* data) {
  Registry& all = registry();
  Allocation allocation;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.allocations.find(static_cast<char*>(data));
    if (found == all.allocations.end()) return false;
    allocation = found->second;
    check(found->first, allocation, all.last_kernel.c_str(), 0,
          " (noticed when it was freed; the kernel is the last one launched)");
    all.allocations.erase(found);
    if (is_checking()) {
      std::memset(data, 0xFF, allocation.bytes);  // host code that reads on finds NaN; a kernel is reported
      keep_freed(all, static_cast<char*>(data), allocation);
      return true;
    }
  }
  std::free(allocation.raw);
  return true;
}

bool is_device_only(const char* what) {
  for (const char* const own : {"cudaMalloc allocation", "cudaMallocAsync allocation", "cudaMallocPitch allocation"}) {
    if (std::strcmp(what, own) == 0) return true;
  }
  return false;
}

Extent guarded_extent(const char* address) { return extent_at(address, false); }

Extent extent_for_kernel(const char* address) { return extent_at(address, true); }

Extent device_memory_at(const char* address) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (const auto* found = find(all.allocations, address)) {
    const Allocation& one = found->second;
    const bool is_tensor = std::strcmp(one.what, "tensor") == 0;
    const bool is_devices = is_tensor ? one.is_of_device && !one.is_of_host : is_device_only(one.what);
    if (is_devices && holds(found->first, one.bytes, address)) return {found->first, one.bytes, one.what, false};
    return {};
  }
  for (const Known& one : all.known) {
    if (!one.is_of_host && holds(one.extent.data, one.extent.bytes, address)) return one.extent;
  }
  return {};
}

bool may_be_on_device(const char* address) {
  struct Look {
    std::atomic<std::uintptr_t> page{0};
    std::atomic<std::uint64_t> version{0};
  };
  static Look looks[64];  // at pages without such memory, by any thread
  Registry& all = registry();
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(address) / kPageBytes;
  const std::uint64_t version = all.version;
  Look& look = looks[page % 64];
  if (look.page == page && look.version == version) return false;
  const char* const begin = reinterpret_cast<const char*>(page * kPageBytes);
  const char* const end = begin + kPageBytes;
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto one = all.allocations.lower_bound(const_cast<char*>(end));
  if (one != all.allocations.begin() && (--one)->first + one->second.bytes > begin) return true;
  for (const Known& known : all.known) {
    if (known.extent.data < end && known.extent.data + known.extent.bytes > begin) return true;
  }
  look.page = page;
  look.version = version;
  return false;
}

void give_to_host(const char* address) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (auto* found = find(all.allocations, address)) found->second.is_of_host = true;
  for (Known& one : all.known) {
    if (holds(one.extent.data, one.extent.bytes, address)) one.is_of_host = true;
  }
}

bool leaves_allocation(const void* address, std::size_t bytes) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  char* const begin = static_cast<char*>(const_cast<void*>(address));
  auto after = all.allocations.upper_bound(begin);
  if (after == all.allocations.begin()) return false;
  const auto& [data, allocation] = *--after;
  const std::size_t offset = static_cast<std::size_t>(begin - data);
  return offset < allocation.bytes && bytes > allocation.bytes - offset;
}

void check_guarded_memory(const char* kernel, int line, bool is_told) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.last_kernel = kernel;
  for (const auto& [data, allocation] : all.allocations) check(data, allocation, kernel, line, "", is_told);
}

}  // namespace cuemu

extern "C" {

void* cuemu_guarded_allocate(std::size_t bytes, const char* what) { return cuemu::guarded_allocate(bytes, what); }

void cuemu_forget_tensors(void) {
  cuemu::Registry& all = cuemu::registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.known.clear();
}

// A tensor on the device, where the judge has just put its values. It has a name in reports if torch's allocator did not
// make it.
void cuemu_know_tensor(const void* data, std::size_t bytes, const char* name) {
  cuemu::Registry& all = cuemu::registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const char* const address = static_cast<const char*>(data);
  ++all.version;
  if (auto* found = cuemu::find(all.allocations, address)) {
    found->second.is_of_device = true;
    found->second.is_of_host = false;
  } else {
    all.known.push_back({{address, bytes, all.names.insert(name).first->c_str(), false}});
  }
}

void cuemu_give_to_host(const void* data) { cuemu::give_to_host(static_cast<const char*>(data)); }

int cuemu_guarded_free(void* data) { return cuemu::guarded_free(data) ? 1 : 0; }

}  // extern "C"
