// sums (64, 64) += left (64, 16), 16 rows of which lie in a warp's registers, times right (16, 64) in shared memory,
// which runs along its 64 columns.
__device__ __forceinline__ void multiply_pixels(float (&sums)[32], const uint32_t (&left)[4], uint64_t right) {
  asm volatile(
      "{\n"
      ".reg .pred keeps;\n"
      "setp.ne.b32 keeps, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
{% for first in range(0, 32, 16) %}
      "{% for i in range(first, first + 16) %}%{{ i }}{{ ", " if i < 31 else "}, " }}{% endfor %}"
{% endfor %}
      "{ %32, %33, %34, %35}, %36, keeps, 1, 1, 1;\n"
      "}\n"
{% for first in range(0, 32, 4) %}
      {{ ": " if first == 0 else "  " }}{% for i in range(first, first + 4) %}"+f"(sums[{{ i }}]){{ ", " if i < 31 and i % 4 < 3 else ("," if i < 31 else "") }}{% endfor %}

{% endfor %}
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(1));
}
