// The callbacks of a checked build. The compiler builds kernels with
// -fsanitize=thread,alignment,bounds,signed-integer-overflow, and the library is linked without a
// sanitizer's runtime. So the calls for every access and every doubtful operation come here.
// While nothing is checked, they only do what the program asked for.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "checking.h"
#include "worker.h"

namespace cuemu {
namespace {

bool is_checked() { return is_checking() && in_kernel(); }

// A place in the source as the compiler passes it. The layouts are those of the sanitizers.
struct SourceLocation {
  const char* file;
  std::uint32_t line;
  std::uint32_t column;
};
struct TypeDescriptor {
  std::uint16_t kind;
  std::uint16_t info;
  char name[1];
};
struct OverflowData {
  SourceLocation location;
  const TypeDescriptor* type;
};
struct OutOfBoundsData {
  SourceLocation location;
  const TypeDescriptor* array;
  const TypeDescriptor* index;
};
struct MismatchData {
  SourceLocation location;
  const TypeDescriptor* type;
  unsigned char log_alignment;
  unsigned char kind;
};
struct PointerData {
  SourceLocation location;
};

// The location may lie in a header of the emulator. So a report has the code, whose inlined calls lead to the kernel's line.
[[noreturn]] void end_thread_of(const char* kind, const void* code, const std::string& words, const char* remedy) {
  Worker& worker = this_worker();
  worker.fail_at(kind, code, worker.position() + " " + words + " in line {0}", "accesses", remedy);
}

constexpr const char* kAlign =
    "Use vector types only where the address is known to be aligned; read the rest element by element.";

std::string beyond(std::uintptr_t address, unsigned alignment) {
  return " at an address that is no multiple of " + std::to_string(alignment) + " (" + std::to_string(address % alignment) +
         " bytes beyond one)";
}

void overflow(const void* data, const char* operation, const void* code) {
  if (!is_checked()) return;
  tell_overflow(code, operation, static_cast<const OverflowData*>(data)->type->name);
}

void note(const Touch& touch) {
  if (!is_checking()) return;
  if (in_kernel()) return check_access(touch);
  check_host_access(touch);
}

// The address of an atomic operation is a multiple of its size, also in a local variable. Its memory order tells its scope
// (cuemu/atomics.h).
void check_atomic(const volatile void* address, std::size_t bytes, bool reads, bool writes, bool compares, int order,
                  const void* code) {
  if (!is_checked()) return;
  const char* const place = static_cast<const char*>(const_cast<const void*>(address));
  const Touch touch{place, bytes, reads, writes, true, false, code, compares,
                    order == __ATOMIC_ACQUIRE || order == __ATOMIC_RELEASE, order == __ATOMIC_RELAXED && !writes,
                    order == __ATOMIC_RELAXED && compares, this_worker().take_discarded()};
  const auto value = reinterpret_cast<std::uintptr_t>(place);
  if (value % bytes != 0) {
    end_thread_of("misaligned", code, verb(touch) + (" " + size_words(bytes)) + beyond(value, static_cast<unsigned>(bytes)), kAlign);
  }
  check_access(touch);
}

}  // namespace
}  // namespace cuemu

using cuemu::is_checked;
using cuemu::note;

#define CUEMU_HERE __builtin_return_address(0)
#define CUEMU_TOUCH(name, size, reads, writes, is_volatile)                                                     \
  void __tsan_##name(void* address) {                                                                           \
    note({static_cast<char*>(address), size, reads, writes, false, is_volatile, CUEMU_HERE});                    \
  }
#define CUEMU_TOUCHES(size)                                   \
  CUEMU_TOUCH(read##size, size, true, false, false)            \
  CUEMU_TOUCH(write##size, size, false, true, false)           \
  CUEMU_TOUCH(unaligned_read##size, size, true, false, false)  \
  CUEMU_TOUCH(unaligned_write##size, size, false, true, false) \
  CUEMU_TOUCH(volatile_read##size, size, true, false, true)    \
  CUEMU_TOUCH(volatile_write##size, size, false, true, true)   \
  CUEMU_TOUCH(unaligned_volatile_read##size, size, true, false, true) \
  CUEMU_TOUCH(unaligned_volatile_write##size, size, false, true, true) \
  CUEMU_TOUCH(read_write##size, size, true, true, false)       \
  CUEMU_TOUCH(unaligned_read_write##size, size, true, true, false)

// Notes an atomic operation, then performs it.
#define CUEMU_NOTE(size, reads, writes) CUEMU_NOTE_THAT(size, reads, writes, false)
#define CUEMU_NOTE_THAT(size, reads, writes, compares) cuemu::check_atomic(address, size, reads, writes, compares, order, CUEMU_HERE)
#define CUEMU_UPDATE(bits, name, builtin)                                                   \
  std::uint##bits##_t __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* address,   \
                                                   std::uint##bits##_t value, int order) {        \
    CUEMU_NOTE(bits / 8, true, true);                                                       \
    return builtin(address, value, __ATOMIC_SEQ_CST);                                       \
  }
#define CUEMU_COMPARE(bits, name)                                                                              \
  int __tsan_atomic##bits##_##name(volatile std::uint##bits##_t* address, std::uint##bits##_t* expected,       \
                                   std::uint##bits##_t desired, int order, int) {                                    \
    CUEMU_NOTE_THAT(bits / 8, true, true, true);                                                                          \
    return __atomic_compare_exchange_n(address, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
#define CUEMU_ATOMICS(bits)                                                                                   \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* address, int order) {          \
    CUEMU_NOTE(bits / 8, true, false);                                                                        \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                        \
  }                                                                                                           \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* address, std::uint##bits##_t value, int order) {   \
    CUEMU_NOTE(bits / 8, false, true);                                                                        \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                       \
  }                                                                                                           \
  std::uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                                             \
      volatile std::uint##bits##_t* address, std::uint##bits##_t expected, std::uint##bits##_t desired, int order, int) { \
    CUEMU_NOTE_THAT(bits / 8, true, true, true);                                                                         \
    __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
    return expected;                                                                                          \
  }                                                                                                           \
  CUEMU_COMPARE(bits, compare_exchange_strong)                                                                \
  CUEMU_COMPARE(bits, compare_exchange_weak)                                                                  \
  CUEMU_UPDATE(bits, exchange, __atomic_exchange_n)                                                           \
  CUEMU_UPDATE(bits, fetch_add, __atomic_fetch_add)                                                           \
  CUEMU_UPDATE(bits, fetch_sub, __atomic_fetch_sub)                                                           \
  CUEMU_UPDATE(bits, fetch_and, __atomic_fetch_and)                                                           \
  CUEMU_UPDATE(bits, fetch_or, __atomic_fetch_or)                                                             \
  CUEMU_UPDATE(bits, fetch_xor, __atomic_fetch_xor)                                                           \
  CUEMU_UPDATE(bits, fetch_nand, __atomic_fetch_nand)

#define CUEMU_OVERFLOW(name, words)                                             \
  void __ubsan_handle_##name(void* data, std::uintptr_t, std::uintptr_t) {      \
    cuemu::overflow(data, words, CUEMU_HERE);                                               \
  }                                                                             \
  void __ubsan_handle_##name##_abort(void* data, std::uintptr_t, std::uintptr_t) { cuemu::overflow(data, words, CUEMU_HERE); }

extern "C" {

void __tsan_init(void) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

CUEMU_TOUCHES(1)
CUEMU_TOUCHES(2)
CUEMU_TOUCHES(4)
CUEMU_TOUCHES(8)
CUEMU_TOUCHES(16)

void __tsan_read_range(void* address, std::size_t bytes) {
  if (bytes > 0) note({static_cast<char*>(address), bytes, true, false, false, false, CUEMU_HERE});
}
void __tsan_write_range(void* address, std::size_t bytes) {
  if (bytes > 0) note({static_cast<char*>(address), bytes, false, true, false, false, CUEMU_HERE});
}
// clang calls these instead of the library's functions, and so do libraries of g++, by the linker.
#define CUEMU_COPY(name, copy)                                                                        \
  void* name(void* to, const void* from, std::size_t bytes) {                                         \
    if (bytes > 0) {                                                                                  \
      note({static_cast<const char*>(from), bytes, true, false, false, false, CUEMU_HERE});           \
      note({static_cast<char*>(to), bytes, false, true, false, false, CUEMU_HERE});                   \
    }                                                                                                 \
    return copy(to, from, bytes);                                                                     \
  }
#define CUEMU_FILL(name)                                                                                              \
  void* name(void* to, int value, std::size_t bytes) {                                                                \
    if (bytes > 0) note({static_cast<char*>(to), bytes, false, true, false, false, CUEMU_HERE});                         \
    return std::memset(to, value, bytes);                                                                             \
  }
CUEMU_COPY(__tsan_memcpy, std::memcpy)
CUEMU_COPY(__wrap_memcpy, std::memcpy)
CUEMU_COPY(__tsan_memmove, std::memmove)
CUEMU_COPY(__wrap_memmove, std::memmove)
CUEMU_FILL(__tsan_memset)
CUEMU_FILL(__wrap_memset)

CUEMU_ATOMICS(8)
CUEMU_ATOMICS(16)
CUEMU_ATOMICS(32)
CUEMU_ATOMICS(64)

CUEMU_OVERFLOW(add_overflow, "+")
CUEMU_OVERFLOW(sub_overflow, "-")
CUEMU_OVERFLOW(mul_overflow, "*")
void __ubsan_handle_negate_overflow(void* data, std::uintptr_t) { cuemu::overflow(data, "-", CUEMU_HERE); }
void __ubsan_handle_divrem_overflow(void* data, std::uintptr_t, std::uintptr_t) { cuemu::overflow(data, "/", CUEMU_HERE); }

void __ubsan_handle_out_of_bounds(void* data, std::uintptr_t index) {
  if (!is_checked()) return;
  const auto& about = *static_cast<cuemu::OutOfBoundsData*>(data);
  cuemu::end_thread_of("out-of-bounds", CUEMU_HERE,
                       "indexes an array of type " + std::string(about.array->name) + " with " +
                           std::to_string(static_cast<std::intptr_t>(index)),
                       "Bound the index by the array's extent.");
}

void __ubsan_handle_type_mismatch_v1(void* data, std::uintptr_t address) {
  if (!is_checked()) return;
  const auto& about = *static_cast<cuemu::MismatchData*>(data);
  cuemu::end_thread_of("misaligned", CUEMU_HERE,
                       "accesses " + std::string(about.type->name) + cuemu::beyond(address, 1u << about.log_alignment),
                       cuemu::kAlign);
}

}  // extern "C"
