// Memory between red zones. The check after a launch finds writes outside an allocation.
#pragma once

#include <cstddef>
#include <string>

namespace cuemu {

// Two bytes that fill memory repeatedly, starting at an even address.
struct TwoBytes {
  unsigned char bytes[2];
};

// Sets the fill of new memory, and of the zones around all memory, from now on. The two differ.
void set_fill(TwoBytes memory, TwoBytes zones);
void fill_poison(char* begin, std::size_t bytes);
// Whether all of these bytes equal the fill of new memory.
bool is_poison(const char* begin, std::size_t bytes);

void fill_red_zone(char* begin, std::size_t bytes);

// Returns the first changed byte of a red zone, or null.
char* damage_in(char* begin, std::size_t bytes);

// Returns the byte after the last changed one, or null.
char* damage_end_in(char* begin, std::size_t bytes);

// Returns poisoned memory, aligned to 256 bytes, or null if there is none. `what` names it in
// reports ("tensor").
void* guarded_allocate(std::size_t bytes, const char* what);

// Checks and frees memory. Returns false if `data` is not a guarded allocation. In the checking
// mode the memory stays for a while, so that the checker sees a kernel that still uses it.
bool guarded_free(void* data);

// An allocation without its red zones.
struct Extent {
  const char* data;
  std::size_t bytes;
  const char* what;
  bool is_freed;
};
// Returns the guarded allocation whose data or red zones contain `address`; all null if there is
// none.
Extent guarded_extent(const char* address);

// The same, for an access by a kernel: the memory is the device's from now on.
Extent extent_for_kernel(const char* address);

// Whether only the device may access an allocation of this name.
bool is_device_only(const char* what);

// Returns the allocation with `address` in it if only the device may access it; all null if not. Such is what cudaMalloc
// returned, an input, a parameter, and a tensor that a kernel has accessed. A tensor that an operator gave to the host,
// as `.cpu()` does, is the host's, too.
Extent device_memory_at(const char* address);

// Whether any such memory lies in the page of an address. What an earlier look has shown is known as long as no memory
// comes or changes hands.
bool may_be_on_device(const char* address);

// Says that an operator gives a tensor's memory to the host.
void give_to_host(const char* address);

// Whether the `bytes` bytes from `address` leave the guarded allocation that contains `address`.
bool leaves_allocation(const void* address, std::size_t bytes);

// Restores the red zones of all allocations, and reports writes there unless `is_told`.
void check_guarded_memory(const char* kernel, int line, bool is_told = false);

}  // namespace cuemu
