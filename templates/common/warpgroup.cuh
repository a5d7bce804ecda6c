// Products of tiles by a warpgroup, with operands in shared memory.

__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until no more than kLeft groups of products are under way.
template <int kLeft>
__device__ __forceinline__ void await_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// sums (64, 128) = left (64, 16) times right (128, 16) transposed, plus the sums before if `keeps`; both operands in
// shared memory, depth along memory.
__device__ __forceinline__ void multiply_halves(float (&sums)[64], uint64_t left, uint64_t right, int keeps) {
  asm volatile(
      "{\n"
      ".reg .pred keeps;\n"
      "setp.ne.b32 keeps, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
{% for first in range(0, 64, 16) %}
      "{% for i in range(first, first + 16) %}%{{ i }}{{ ", " if i < 63 else "}, " }}{% endfor %}"
{% endfor %}
      "%64, %65, keeps, 1, 1, 0, 0;\n"
      "}\n"
{% for first in range(0, 64, 4) %}
      {{ ": " if first == 0 else "  " }}{% for i in range(first, first + 4) %}"+f"(sums[{{ i }}]){{ ", " if i < 63 and i % 4 < 3 else ("," if i < 63 else "") }}{% endfor %}

{% endfor %}
      : "l"(left), "l"(right), "r"(keeps));
}
