// Memory between red zones: writes outside an allocation are found after the launch that made them.
#pragma once

#include <cstddef>
#include <string>

namespace cuemu {

// A byte of poison everywhere: reads as NaN in every floating-point type, as -1 in signed integers.
constexpr unsigned char kPoison = 0xFF;

// Fills bytes with a pattern that reads as NaN like poison, but differs from it (and from -1).
void fill_red_zone(char* begin, std::size_t bytes);

// The first byte of a red zone that was changed, or null.
char* damage_in(char* begin, std::size_t bytes);

// The byte after the last one that was changed, or null.
char* damage_end_in(char* begin, std::size_t bytes);

// Poisoned memory, aligned to 256 bytes, or null where there is none. `what` names it in reports ("tensor").
void* guarded_allocate(std::size_t bytes, const char* what);

// Checks and frees; false when `data` is no guarded allocation.
bool guarded_free(void* data);

// Whether `bytes` bytes from `address` leave the guarded allocation that `address` lies in.
bool leaves_allocation(const void* address, std::size_t bytes);

// Reports and mends the red zones of all allocations.
void check_guarded_memory(const char* kernel, int line);

}  // namespace cuemu
