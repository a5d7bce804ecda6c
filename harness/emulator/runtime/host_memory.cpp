#include "host_memory.h"

#include <link.h>
#include <pthread.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "checking.h"
#include "cuemu/launch.h"
#include "guard.h"

namespace cuemu {
namespace {

constexpr std::uintptr_t kPageBytes = 4096;

// Ranges of memory by their beginnings.
class Ranges {
 public:
  void add(const void* data, std::size_t bytes) { ends_[static_cast<const char*>(data)] = bytes; }
  void remove(const void* data) { ends_.erase(static_cast<const char*>(data)); }
  bool hold(const char* address) const {
    auto after = ends_.upper_bound(address);
    if (after == ends_.begin()) return false;
    --after;
    return static_cast<std::size_t>(address - after->first) < after->second;
  }

 private:
  std::map<const char*, std::size_t> ends_;
};

struct Lists {
  std::mutex mutex;
  Ranges own;
  Ranges stacks;
  Ranges lent;
};

Lists& lists() {
  static Lists* const all = [] {
    pthread_atfork([] { lists().mutex.lock(); }, [] { lists().mutex.unlock(); }, [] { lists().mutex.unlock(); });
    return new Lists;
  }();
  return *all;
}

// Whether an address lies in a segment of a loaded library, which holds its variables and constants.
bool is_of_library(const char* address) {
  const auto holds = [](dl_phdr_info* library, std::size_t, void* given) -> int {
    const auto wanted = reinterpret_cast<std::uintptr_t>(given);
    for (int i = 0; i < library->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = library->dlpi_phdr[i];
      const std::uintptr_t begin = library->dlpi_addr + segment.p_vaddr;
      if (segment.p_type == PT_LOAD && wanted >= begin && wanted - begin < segment.p_memsz) return 1;
    }
    return 0;
  };
  return dl_iterate_phdr(holds, const_cast<char*>(address)) != 0;
}

// Whether an address lies in the heap, a stack, or memory that belongs to no file. False where the
// system does not tell.
bool is_anonymous(const char* address) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return false;
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  char* line = nullptr;
  std::size_t capacity = 0;
  bool found = false;
  while (!found && getline(&line, &capacity, maps) > 0) {
    std::uintptr_t begin = 0, end = 0;
    char sharing = 0;
    int name = 0;
    if (std::sscanf(line, "%zx-%zx %*3c%c %*s %*s %*s %n", &begin, &end, &sharing, &name) < 3) continue;
    if (wanted < begin || wanted >= end) continue;
    const char* const path = line + name;
    found = sharing == 'p' && (*path == '\0' || std::strncmp(path, "[heap", 5) == 0 ||
                               std::strncmp(path, "[stack", 6) == 0 || std::strncmp(path, "[anon:", 6) == 0);
    break;
  }
  std::free(line);
  std::fclose(maps);
  return found;
}

// What an earlier look at a page has shown.
struct Page {
  std::uintptr_t number = 0;
  Owner owner = Owner::everybody;
};

}  // namespace

void note_own_memory(const void* data, std::size_t bytes) {
  Lists& all = lists();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.own.add(data, bytes);
}

void note_stacks(const void* data, std::size_t bytes) {
  Lists& all = lists();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.stacks.add(data, bytes);
}

void lend_host_memory(const void* data, std::size_t bytes) {
  Lists& all = lists();
  give_to_host(static_cast<const char*>(data));
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.lent.add(data, bytes);
}

void take_back_host_memory(const void* data) {
  Lists& all = lists();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.lent.remove(data);
}

Owner owner_of_memory(const char* address) {
  static Page pages[64];  // one OS thread runs all blocks of a checked launch
  const std::uintptr_t number = reinterpret_cast<std::uintptr_t>(address) / kPageBytes;
  Page& known = pages[number % 64];
  if (known.number == number && known.owner != Owner::host) return known.owner;
  bool is_stack = false;
  {
    const Lists& all = lists();
    const std::lock_guard<std::mutex> lock(lists().mutex);
    if (all.own.hold(address) || all.lent.hold(address)) return Owner::everybody;  // a page may hold other memory, too
    is_stack = all.stacks.hold(address);
  }
  if (known.number != number) {
    known = {number, is_stack                                             ? Owner::thread
                     : !is_of_library(address) && is_anonymous(address) ? Owner::host
                                                                          : Owner::everybody};
  }
  return known.owner;
}

}  // namespace cuemu

extern "C" {

// The memory of a tensor. What torch's allocator has made is known already.
void cuemu_lend_tensor(const void* data, std::size_t bytes) {
  if (!cuemu::is_checking() || data == nullptr || bytes == 0) return;
  if (cuemu::guarded_extent(static_cast<const char*>(data)).data == nullptr) cuemu::lend_host_memory(data, bytes);
}

}  // extern "C"
