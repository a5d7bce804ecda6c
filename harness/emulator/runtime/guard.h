// Memory between red zones: writes outside an allocation are found after the launch that made them.
#pragma once

#include <cstddef>
#include <string>

namespace cuemu {

// Two bytes that new memory is filled with, again and again, from an even address on.
struct Poison {
  unsigned char bytes[2];
};
// Reads as NaN in every floating-point type, as -1 in signed integers.
constexpr Poison kNaNs = {{0xFF, 0xFF}};

// What new memory is filled with from now on.
void set_poison(Poison poison);
void fill_poison(char* begin, std::size_t bytes);
// Whether all of these bytes are what new memory is filled with.
bool is_poison(const char* begin, std::size_t bytes);

// Fills bytes with a pattern that reads as NaN like poison, but differs from it (and from -1).
void fill_red_zone(char* begin, std::size_t bytes);

// The first byte of a red zone that was changed, or null.
char* damage_in(char* begin, std::size_t bytes);

// The byte after the last one that was changed, or null.
char* damage_end_in(char* begin, std::size_t bytes);

// Poisoned memory, aligned to 256 bytes, or null where there is none. `what` names it in reports ("tensor").
void* guarded_allocate(std::size_t bytes, const char* what);

// Checks and frees; false when `data` is no guarded allocation. In the checking mode memory is kept for a while, so that
// a kernel that still uses it is seen.
bool guarded_free(void* data);

// An allocation, its red zones left out.
struct Extent {
  const char* data;
  std::size_t bytes;
  const char* what;
  bool is_freed;
};
// The guarded allocation that `address` lies in, or in whose red zones; all null where there is none.
Extent guarded_extent(const char* address);

// Whether `bytes` bytes from `address` leave the guarded allocation that `address` lies in.
bool leaves_allocation(const void* address, std::size_t bytes);

// Mends the red zones of all allocations, and reports what was written there unless that `is_told` already.
void check_guarded_memory(const char* kernel, int line, bool is_told = false);

}  // namespace cuemu
