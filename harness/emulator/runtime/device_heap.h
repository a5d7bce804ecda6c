// The heap of kernels' malloc and new in the checking mode. It has the size that cudaDeviceSetLimit sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuemu {

// At most `resident` blocks of the launch run at the same time.
void begin_heap_of_launch(std::uint64_t resident);
void set_heap_limit(std::size_t bytes);
std::size_t heap_limit();
// Whether the heap has room for an allocation of the running block.
bool has_heap_room(std::size_t bytes);
void note_heap_allocation(const void* data, std::size_t bytes);
void note_heap_free(const void* data);

}  // namespace cuemu
