// sums (64, 64) = left (64, 16) times right (64, 16) transposed, plus the sums before if `keeps`; both operands in
// shared memory, depth along memory.
__device__ __forceinline__ void multiply_halves(float (&sums)[32], uint64_t left, uint64_t right, int keeps) {
  asm volatile(
      "{\n"
      ".reg .pred keeps;\n"
      "setp.ne.b32 keeps, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
{% for first in range(0, 32, 16) %}
      "{% for i in range(first, first + 16) %}%{{ i }}{{ ", " if i < 31 else "}, " }}{% endfor %}"
{% endfor %}
      "%32, %33, keeps, 1, 1, 0, 0;\n"
      "}\n"
{% for first in range(0, 32, 4) %}
      {{ ": " if first == 0 else "  " }}{% for i in range(first, first + 4) %}"+f"(sums[{{ i }}]){{ ", " if i < 31 and i % 4 < 3 else ("," if i < 31 else "") }}{% endfor %}

{% endfor %}
      : "l"(left), "l"(right), "r"(keeps));
}
