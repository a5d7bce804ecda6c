// Which memory of the process is the host's, so that a kernel on a GPU could not access it.
#pragma once

#include <cstddef>

namespace cuemu {

// Notes memory that the runtime itself gives to kernels: shared memory, and the stacks of their threads.
void note_own_memory(const void* data, std::size_t bytes);
void note_stacks(const void* data, std::size_t bytes);

// Notes host memory that kernels may access: memory that the program registers, that a kernel
// allocates, and that of a tensor which torch did not allocate.
void lend_host_memory(const void* data, std::size_t bytes);
void take_back_host_memory(const void* data);

// Whose memory an address outside all guarded allocations lies in. Only the host may access that of malloc, new and mmap,
// and the stacks of its threads. Variables of libraries and files are everybody's, local variables of a kernel one thread's.
enum class Owner { everybody, host, thread };
Owner owner_of_memory(const char* address);

}  // namespace cuemu
