"""Tests the rewriting of CUDA source as text: each construct, and that line numbers stay."""

from __future__ import annotations

import re

import pytest

from harness.emulator.rewrite import rewrite_cuda, rewrite_host

KERNEL = "__global__ void k(float* x, int n) { }\n"


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def launch(name: str, config: str, kernel: str, arguments: str = "", is_computed: bool = False) -> str:
    captures, called = (f"cuemu_kernel = {kernel}", "cuemu_kernel") if is_computed else ("&", kernel)
    return (
        f'::cuemu::launch(CUEMU_KERNEL("{name}", {kernel}), __LINE__, ::cuemu::config({config}), '
        f"[{captures}](auto const&... cuemu_a) {{ {called}(cuemu_a...); }})({arguments})"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("k<<<1, 2>>>(x, n);", launch("k", "1, 2", "k", "x, n") + ";"),
        ("k<<<1, 2>>>();", launch("k", "1, 2", "k") + ";"),
        ("k<float, 4><<<g, b, 0, s>>>(x);", launch("k", "g, b, 0, s", "k<float, 4>", "x") + ";"),
        ("k<A<B<int>>><<<1, 2>>>(x);", launch("k", "1, 2", "k<A<B<int>>>", "x") + ";"),
        ("k<(N > 2)><<<1, 2>>>(x);", launch("k", "1, 2", "k<(N > 2)>", "x") + ";"),
        ("a::b::k<<<1, 2>>>(x);", launch("k", "1, 2", "a::b::k", "x") + ";"),
        ("::k<<<1, 2>>>(x);", launch("k", "1, 2", "::k", "x") + ";"),
        ("return ::k<<<1, 2>>>(x);", "return " + launch("k", "1, 2", "::k", "x") + ";"),
        ("this->k<<<1, 2>>>(x);", launch("k", "1, 2", "this->k", "x", True) + ";"),
        ("(*pointer)<<<1, 2>>>(x);", launch("pointer", "1, 2", "(*pointer)", "x", True) + ";"),
        ("table[i]<<<1, 2>>>(x);", launch("table", "1, 2", "table[i]", "x", True) + ";"),
        ("pick(a, b)<<<1, 2>>>(x);", launch("pick", "1, 2", "pick(a, b)", "x", True) + ";"),
        ("if (x) k<<<1, 2>>>(x);", "if (x) " + launch("k", "1, 2", "k", "x") + ";"),
        ("T::template k<3><<<1, 2>>>(x);", launch("k", "1, 2", "T::template k<3>", "x") + ";"),
        ("k<<<n >> 2, m<A<int>>(3)>>>(x);", launch("k", "n >> 2, m<A<int>>(3)", "k", "x") + ";"),
        ("k<<<f<A<B<int>>>(3), 4>>>(x);", launch("k", "f<A<B<int>>>(3), 4", "k", "x") + ";"),
        ("k<<<1, 2>>>(NULL, f(NULL));", launch("k", "1, 2", "k", "nullptr, f(NULL)") + ";"),
        (
            "k<<<1, 2>>>([](int a, int b) { return a, b; }, p<int, int>());",
            launch("k", "1, 2", "k", "[](int a, int b) { return a, b; }, p<int, int>()") + ";",
        ),
        (
            "DISPATCH(t, [&] { k<T><<<1, 2>>>(x.data<T>(), 3); });",
            "DISPATCH(t, [&] { " + launch("k", "1, 2", "k<T>", "x.data<T>(), 3") + "; });",
        ),
        ("k<<<1, 2>>>(h(j<<<3, 4>>>(y)));", launch("k", "1, 2", "k", f"h({launch('j', '3, 4', 'j', 'y')})") + ";"),
    ],
)
def test_launches(source: str, expected: str) -> None:
    assert squeezed(rewrite_cuda(source)) == expected


def test_a_launch_over_several_lines_keeps_every_line() -> None:
    source = "k<float,  // elements\n  4>\n  <<<grid,\n     block>>>(x,\n      /* the\n size */ n);\nint after;"
    result = rewrite_cuda(source)
    assert result.count("\n") == source.count("\n")
    assert squeezed(result.split("\n")[0]).startswith('::cuemu::launch(CUEMU_KERNEL("k", k<float, 4>), __LINE__')
    assert result.split("\n")[-1] == "int after;"


def test_a_launch_in_a_macro_body_stays_in_its_continued_lines() -> None:
    source = "#define RUN(K, n) K<<<(n), \\\n    256>>>(x, \\\n    n)\nint after;"
    result = rewrite_cuda(source)
    first, second, third, last = result.split("\n")
    assert first.startswith("#define RUN(K, n) ::cuemu::launch(CUEMU_KERNEL(#K, K), __LINE__")
    assert first.endswith("\\")
    assert second.endswith("\\")
    assert not third.endswith("\\")
    assert last == "int after;"


@pytest.mark.parametrize(
    "source",
    [
        'auto s = "k<<<1, 2>>>(x)";',
        'auto s = "a \\" k<<<1, 2>>>(x)";',
        'auto s = R"(" k<<<1, 2>>>(x) asm("") )";',
        'auto s = R"--(__shared__ int x; )" )--";',
        "// k<<<1, 2>>>(x) isn't one\nint a = 1'000'000;",
        "/* k<<<1, 2>>>(x); __shared__ int a; */",
        "// continued \\\nk<<<1, 2>>>(x)\nint a;",
        "char c = '\"'; char d = '\\''; int a = b << 3 >> 1;",
        "std::cout << 1 << 2;",
        "#error don't k<<<1, 2>>>(x)",
        "#include <a<<<1,2>>>(b)>",
        "struct S { bool operator<<(int) const; };",
    ],
)
def test_what_is_no_construct_stays(source: str) -> None:
    assert rewrite_cuda(source) == source


@pytest.mark.parametrize(
    "source",
    [
        "k<<<1, 2>>(x);",
        "k<<<1, 2>>>(x;",
        "k<<<1, f(2>>>(x);",
        "<<<1, 2>>>(x);",
        "void f() { k<<<1, 2>>>(x)",
        "__global__ void k() { __shared__ float",
        "__shared__",
        "__shared__ ;",
        "extern __shared__ float s[",
        'asm volatile("bar.sync 0;"',
        "cudaFuncSetAttribute(",
        "cudaLaunchKernel()",
        "cudaLaunchKernelEx(&c)",
        "cudaLaunchCooperativeKernel(",
        '"unclosed string\n k<<<',
        "/* unclosed comment k<<<1, 2>>>(x);",
        'R"x(unclosed raw',
        "#define",
        "}}}}) ]",
        "",
        "\x00\x01é ",
    ],
)
def test_malformed_text_neither_raises_nor_moves_a_line(source: str) -> None:
    assert rewrite_cuda(source).count("\n") == source.count("\n")
    assert rewrite_host(source).count("\n") == source.count("\n")


def test_every_cut_of_a_source_keeps_its_lines() -> None:
    source = (
        "#define SH __shared__\nextern __shared__ float s[];\ntemplate <int N> __global__ void k(float* x) {\n"
        '  SH float a[N]\n   [3], b;\n  asm volatile("x;"\n ::);\n  s[0] = a[0][0];\n}\n'
        "void f() {\n  k<3>\n  <<<1,\n  2>>>(x);\n cudaFuncSetAttribute((void*)k<3>, A,\n 3); }\n"
    )
    for cut in range(len(source)):
        for piece in (source[:cut], source[cut:]):
            assert rewrite_cuda(piece).count("\n") == piece.count("\n"), piece


def in_kernel(declaration: str) -> str:
    """What a declaration inside a kernel becomes."""
    result = squeezed(rewrite_cuda(f"__global__ void k(float* x) {{ {declaration} }}"))
    return result.removeprefix("__global__ void k(float* x) { ").removesuffix(" }")


def dynamic(name: str, alignment: int) -> str:
    type_ = f"cuemu_type_{name}"
    return f"{type_} (&{name})[] = *reinterpret_cast<{type_} (*)[]>(::cuemu::dynamic_shared<{type_}>({alignment}));"


def slot(name: str, alignment: str = "0") -> str:
    shared = f'::cuemu::shared_slot<cuemu_type_{name}>(&cuemu_key_{name}, {alignment}, "{name}", __LINE__)'
    return f"static char cuemu_key_{name}; cuemu_type_{name}& {name} = {shared};"


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("__shared__ float a[4][N];", f"typedef float cuemu_type_a[4][N]; {slot('a')}"),
        ("__shared__ unsigned long long a;", f"typedef unsigned long long cuemu_type_a; {slot('a')}"),
        ("volatile __shared__ float a[2];", f"typedef volatile float cuemu_type_a[2]; {slot('a')}"),
        ("__shared__ volatile float a[2];", f"typedef volatile float cuemu_type_a[2]; {slot('a')}"),
        ("static __shared__ int a;", f"typedef int cuemu_type_a; {slot('a')}"),
        ("__shared__ std::array<T, 4> a;", f"typedef std::array<T, 4> cuemu_type_a; {slot('a')}"),
        ("__shared__ typename P<T>::type a[N + 1];", f"typedef typename P<T>::type cuemu_type_a[N + 1]; {slot('a')}"),
        ("__shared__ __align__(16) float a[4];", f"typedef float cuemu_type_a[4]; {slot('a', '16')}"),
        ("__align__(16) __shared__ float a[4];", f"typedef float cuemu_type_a[4]; {slot('a', '16')}"),
        ("alignas(32) __shared__ float a[4];", f"typedef float cuemu_type_a[4]; {slot('a', '32')}"),
        ("__shared__ struct { int u; } a[2];", "typedef struct { int u; } cuemu_type_a[2]; " + slot("a")),
        (
            "__shared__ alignas(float4) float a[4];",
            "typedef float cuemu_type_a[4]; struct alignas(float4) cuemu_aligned_a { char byte; }; "
            + slot("a", "alignof(cuemu_aligned_a)"),
        ),
        (
            "__shared__ float a[2], *b;",
            f"typedef float cuemu_base_a; typedef cuemu_base_a cuemu_type_a[2]; {slot('a')} "
            f"typedef cuemu_base_a *cuemu_type_b; {slot('b')}",
        ),
        (
            "extern __shared__ float a[];",
            "typedef float cuemu_type_a; " + dynamic("a", 0),
        ),
        (
            "extern __shared__ __align__(16) unsigned char a[];",
            "typedef unsigned char cuemu_type_a; " + dynamic("a", 16),
        ),
        (
            "extern __align__(16) __shared__ float a[][32];",
            "typedef float cuemu_type_a[32]; " + dynamic("a", 16),
        ),
    ],
)
def test_shared_declarations(declaration: str, expected: str) -> None:
    assert in_kernel(declaration) == expected


def test_where_a_lambda_copies_shared_memory_of_unknown_length_is_a_pointer() -> None:
    text = in_kernel("extern __shared__ float a[]; auto first = [=] { return a[0]; };")
    assert "cuemu_type_a* a = ::cuemu::dynamic_shared<cuemu_type_a>(0);" in text
    elsewhere = "extern __shared__ float a[]; } void other(int n) { auto copied = [=] { return n; };"
    assert dynamic("a", 0) in in_kernel(elsewhere)


def test_a_shared_declaration_with_an_initializer_is_left_to_fail() -> None:
    assert "static_assert(sizeof(cuemu_type_a) == 0" in in_kernel("__shared__ int a = 3;")


def test_file_scope_shared_memory_appears_in_each_later_device_function_that_uses_it() -> None:
    source = (
        "__global__ void before() { }\n"
        "extern __shared__ float s[];\n"
        "#define DEVICE __device__ inline\n"
        "DEVICE float helper() { return s[0]; }\n"
        "__global__ void user() { s[1] = 2; }\n"
        "__global__ void other() { int t; }\n"
        "__device__ float parameter(float* s) { return s[0]; }\n"
        "void host() { int s = 3; s += 1; }\n"
    )
    lines = rewrite_cuda(source).split("\n")
    local = "typedef float cuemu_type_s; " + dynamic("s", 0)
    assert "s" not in lines[1].replace(";", "")
    assert [local in line for line in lines] == [False, False, False, True, True, False, False, False, False]


def test_alternative_headers_of_one_function_are_one_body() -> None:
    source = (
        "extern __shared__ float s[];\n#ifdef A\n__global__ void k(int a) {\n#else\n__global__ void k() {\n#endif\n}\n"
        "__global__ void user() { s[1] = 2; }\n"
    )
    assert "dynamic_shared" in rewrite_cuda(source).split("\n")[7]


def test_a_macro_that_spells_shared_is_seen_through() -> None:
    result = rewrite_cuda("#define SMEM __shared__\n__global__ void k() { SMEM float a[2]; }\n")
    assert slot("a") in result


def test_a_macro_that_declares_shared_memory_names_its_parameter() -> None:
    result = rewrite_cuda("#define BUFFER(T, name) __shared__ T name[32];\n")
    assert "typedef T cuemu_type_##name[32]" in result
    assert "#name, __LINE__" in result


@pytest.mark.parametrize("keyword", ["asm", "asm volatile", "__asm__ __volatile__"])
def test_inline_ptx_fails_by_name_where_it_stands(keyword: str) -> None:
    source = f'void f() {{\n  {keyword}("tcgen05.wait::ld.sync.aligned;"\n    ::: "memory");\n  int after;\n}}'
    lines = rewrite_cuda(source).split("\n")
    assert 'static_assert(false, "cuemu-unsupported: inline PTX (tcgen05.wait::ld.sync.aligned): ' in lines[1]
    assert lines[3] == "  int after;"


@pytest.mark.parametrize(
    "operands",
    ["", ' ""', ':::"memory"', ' ::: "memory", "cc"', ': "+r"(x), "+f"(y[f(1, 2)]) :: "memory"', ' :: "r"(x)'],
)
def test_an_assembler_statement_without_instructions_is_a_barrier(operands: str) -> None:
    result = rewrite_cuda(f'void f() {{\n  asm volatile(""{operands});\n  int after;\n}}')
    assert result == 'void f() {\n  __asm__ __volatile__("" ::: "memory");\n  int after;\n}'


@pytest.mark.parametrize("inside", ['"" : "=r"(x)', '"" : "+r"(x), "=r"(y)', '"" "nop;"', '"" : [x] "+r"(x)', ""])
def test_an_assembler_statement_that_may_set_something_is_inline_ptx(inside: str) -> None:
    assert "cuemu-unsupported: inline PTX (" in rewrite_cuda(f"void f() {{ asm volatile({inside}); }}")


def test_braces_get_the_type_of_the_parameter_where_it_is_known() -> None:
    assert rewrite_cuda("k<3><<<1, 2>>>(x, {a, {b}}, f({1}));").endswith("(x, {a, {b}}, f({1}));")
    template = "template <typename T> __global__ void k(T* x, Sizes n) {}\nvoid f() {"
    assert "cuemu-unsupported: braces as an argument" in rewrite_cuda(template + " k<<<1, 2>>>(x, {a}); }")
    assert "(x, {a})" in rewrite_cuda(template + " k<int><<<1, 2>>>(x, {a}); }")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            "cudaFuncSetAttribute(k, attribute, 1 << 16);",
            '::cuemu::func_set_attribute(CUEMU_KERNEL("k", k), attribute, 1 << 16);',
        ),
        ("cudaFuncSetAttribute(&k, a, v);", '::cuemu::func_set_attribute(CUEMU_KERNEL("k", &k), a, v);'),
        (
            "namespace n { static auto e = cudaFuncSetAttribute(k, a, v); }",
            'namespace n { static auto e = ::cuemu::func_set_attribute(CUEMU_GLOBAL_KERNEL("k", k), a, v); }',
        ),
        (
            "void f() { auto e = cudaFuncSetAttribute(k, a, v); }",
            'void f() { auto e = ::cuemu::func_set_attribute(CUEMU_KERNEL("k", k), a, v); }',
        ),
        (
            "cudaFuncSetAttribute((const void*)k<float, 3>, a, v);",
            '::cuemu::func_set_attribute(CUEMU_KERNEL("k", (const void*)k<float, 3>), a, v);',
        ),
        ("cudaFuncSetAttribute(n::k<1>, a, v);", '::cuemu::func_set_attribute(CUEMU_KERNEL("k", n::k<1>), a, v);'),
        (
            "::cudaFuncSetAttribute(reinterpret_cast<void*>(&k), a, v);",
            '::cuemu::func_set_attribute(CUEMU_KERNEL("k", reinterpret_cast<void*>(&k)), a, v);',
        ),
        ("cudaFuncGetAttributes(&attributes, k);", '::cuemu::func_get_attributes(&attributes, CUEMU_KERNEL("k", k));'),
        (
            "cudaLaunchKernel((const void*)k<4>, g, b, p, 0, s);",
            '::cuemu::launch_kernel("k", __LINE__, k<4>, g, b, p, 0, s);',
        ),
        (
            "cudaLaunchCooperativeKernel((void*)&k, g, b, p);",
            '::cuemu::launch_cooperative_kernel("k", __LINE__, k, g, b, p);',
        ),
        ("cudaLaunchKernelEx(&c, k<4>, x, 3);", '::cuemu::launch_kernel_ex(&c, "k", __LINE__, k<4>, x, 3);'),
        ("cudaLaunchKernelExC(&c, (const void*)k, p);", '::cuemu::launch_kernel_exc(&c, "k", __LINE__, k, p);'),
    ],
)
def test_calls_that_name_a_kernel(call: str, expected: str) -> None:
    assert squeezed(rewrite_cuda(call)) == expected


def test_a_variable_that_stands_for_a_kernel_gets_the_kernels_name() -> None:
    source = KERNEL + "void f() { auto p = &k; cudaFuncSetAttribute(p, a, v); p<<<1, 2>>>(x, 1); }"
    result = rewrite_cuda(source)
    assert '::cuemu::func_set_attribute(CUEMU_KERNEL("k", p), a, v)' in result
    assert '::cuemu::launch(CUEMU_KERNEL("k", p), __LINE__' in result


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("CHECK(x.is_cuda() && y->device().is_cuda());", "CHECK(x.is_cpu() && y->device().is_cpu());"),
        ("CHECK(x.type().is_cuda());", "CHECK(x.is_cpu());"),
        ("auto t = x.type(); f(t.is_cuda(), y->type());", "auto t = x.type(); f(t.is_cpu(), y->type());"),
        ("torch::device(torch::kCUDA)", "torch::device(torch::kCPU)"),
        ("x.device().type() == c10::DeviceType::CUDA", "x.device().type() == c10::DeviceType::CPU"),
        ("TORCH_LIBRARY_IMPL(mine, CUDA, m) { }", "TORCH_LIBRARY_IMPL(mine, CPU, m) { }"),
        ("STABLE_TORCH_LIBRARY_IMPL(mine, CUDA, m) { }", "STABLE_TORCH_LIBRARY_IMPL(mine, CPU, m) { }"),
        ("TORCH_LIBRARY_IMPL(mine, AutogradCUDA, m) { }", "TORCH_LIBRARY_IMPL(mine, AutogradCPU, m) { }"),
        ("TORCH_LIBRARY_IMPL(mine, AutocastCUDA, m) { }", "TORCH_LIBRARY_IMPL(mine, AutocastCPU, m) { }"),
        ("MY_TORCH_LIBRARY_IMPL_EXPAND(mine, CUDA, m) { }", "MY_TORCH_LIBRARY_IMPL_EXPAND(mine, CPU, m) { }"),
        ("TORCH_LIBRARY_IMPL(mine, Autograd, m) { }", "TORCH_LIBRARY_IMPL(mine, Autograd, m) { }"),
        ("c10::DispatchKey::AutogradCUDA", "c10::DispatchKey::AutogradCPU"),
        ("c10::DispatchKey::SparseCUDA", "c10::DispatchKey::SparseCPU"),
        ("#define CHECK(x) ASSERT(x.is_cuda(), #x)", "#define CHECK(x) ASSERT(x.is_cpu(), #x)"),
        ('CHECK(ok, "kCUDA is_cuda()");', 'CHECK(ok, "kCUDA is_cuda()");'),
        ("int CUDA = 3;", "int CUDA = 3;"),
        ("int AutogradCUDA = 3;", "int AutogradCUDA = 3;"),
    ],
)
def test_names_of_the_device_become_the_cpus(source: str, expected: str) -> None:
    assert rewrite_host(source) == expected
    assert rewrite_cuda(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("__global__ void __launch_bounds__(256) k(int* x) {}", 'CUEMU_NAMED_LAUNCH_BOUNDS((256), "k", k)'),
        ("__launch_bounds__(N, 2) __global__ void k(int* x) {}", 'CUEMU_NAMED_LAUNCH_BOUNDS((N), "k", k)'),
        (
            "template <int N, typename T = int, int... M> __global__ void __launch_bounds__(2 * N) k(T* x) {}",
            'CUEMU_NAMED_LAUNCH_BOUNDS((2 * N), "k", k<N, T, M...>)',
        ),
        (
            "template <> __global__ void __launch_bounds__(64) k<64>(int* x) {}",
            'CUEMU_NAMED_LAUNCH_BOUNDS((64), "k", k<64>)',
        ),
        ("template <int> __global__ void __launch_bounds__(64) k(int* x) {}", "CUEMU_LAUNCH_BOUNDS((64))"),
        ("__global__ void __launch_bounds__(64) scale(float scale) {}", "CUEMU_LAUNCH_BOUNDS((64))"),
        (
            "__global__ void C10_LAUNCH_BOUNDS_1(512) k(int* x) {}",
            'CUEMU_NAMED_LAUNCH_BOUNDS(::cuemu::torchs_bound(512), "k", k)',
        ),
        (
            "#define K(name, n) __global__ void __launch_bounds__(n) name(int* x) {}",
            "CUEMU_NAMED_LAUNCH_BOUNDS((n), #name, name)",
        ),
        (
            "#define K(name, n) __global__ void __launch_bounds__(n) name##_k(int* x) {}",
            'CUEMU_NAMED_LAUNCH_BOUNDS((n), #name "_k", name##_k)',
        ),
    ],
)
def test_a_kernel_with_a_bound_begins_with_a_check(source: str, expected: str) -> None:
    assert f"{{ {expected}" in rewrite_cuda(source)


def test_a_launched_name_may_be_joined_by_the_preprocessor() -> None:
    source = "#define RUN(name, T) name ## _kernel<T><<<g, b>>>(x); ns::k_##name<<<g, b>>>(y)"
    text = rewrite_cuda(source)
    assert 'CUEMU_KERNEL(#name "_kernel", name ## _kernel<T>)' in text
    assert "{ name ## _kernel<T>(cuemu_a...); }" in text
    assert 'CUEMU_KERNEL("k_" #name, ns::k_##name)' in text


def test_a_declaration_with_a_bound_stays() -> None:
    source = "__global__ void __launch_bounds__(64) k(int* x);"
    assert rewrite_cuda(source) == source


def test_an_argument_with_a_default_may_decide_about_the_instance() -> None:
    template = "template <int N, typename T = float> __global__ void k(T* x) {}\n"
    assert 'CUEMU_KERNEL("k", nullptr)' in rewrite_cuda(template + "void f() { k<3><<<1, 2>>>(x); }")
    assert 'CUEMU_KERNEL("k", k<3, int>)' in rewrite_cuda(template + "void f() { k<3, int><<<1, 2>>>(x); }")


def test_the_heap_notes_what_new_allocates() -> None:
    source = "void f() { int* a = new int[3]; a = new (place) int; } void* operator new(size_t);"
    assert rewrite_cuda(source) == source.replace("new int[3]", "new CUEMU_ON_HEAP int[3]")


def test_a_template_with_a_default_is_a_function() -> None:
    source = (
        "template <typename T, typename S = float> __global__ void k(T* x) { __shared__ float tile[3]; }\nint g() {}"
    )
    assert "shared_slot" in rewrite_cuda(source).split("{", 1)[1].split("}")[0]


@pytest.mark.parametrize(
    ("call", "is_plain"),
    [
        ("__vadd4(i, i)", True),
        ("__viaddmax_s16x2_relu(i, i, i)", True),
        ("__dp2a_lo(i, i, 0)", True),
        ("normf(3, x)", True),
        ("__barrier_sync(1)", False),
        ("__uni_sync(~0u, i)", False),
        ("__cluster_barrier_wait()", False),
    ],
)
def test_only_a_kernel_that_certainly_waits_for_nothing_becomes_a_loop(call: str, is_plain: bool) -> None:
    source = f"__global__ void k(float* x) {{ int i = threadIdx.x; __builtin_assume(i < 64); x[i] = 1, {call}; }}\n"
    assert ("CUEMU_EACH_THREAD_BEGIN" in rewrite_cuda(source)) == is_plain


@pytest.mark.parametrize(
    ("body", "is_marked"),
    [
        ("atomicAdd(&x[i], 1);", True),
        ("if (i < n) atomicMax(x, i);", True),
        ("for (int j = 0; j < n; ++j) atomicAdd_system(x + j, 1);", True),
        ("int old = atomicAdd(x, 1);", False),
        ("int old = (int)atomicAdd(x, 1);", False),
        ("for (; atomicOr(x, 0);) {}", False),
        ("int old = ({ atomicAdd(x, 1); });", False),
        ("atomicAdd(&x[atomicAdd(x, 1)], 1);", False),
        ("atomicAdd(&x[NEXT], 1);", False),
        ("return atomicAdd(x, 1);", False),
        ("atomicCAS(x, 0, 1);", False),
    ],
)
def test_atomic_operations_without_a_use_of_their_results_are_marked(body: str, is_marked: bool) -> None:
    source = "#define NEXT atomicAdd(x, 1)\n__global__ void k(int* x, int n, int i) { " + body + " }"
    assert ("discards" in rewrite_cuda(source)) == is_marked


def test_a_function_of_the_same_name_is_the_author_s() -> None:
    source = "__device__ int atomicAdd(Work* w, int i);\n__global__ void k(Work* w) { atomicAdd(w, 1); }"
    assert "discards" not in rewrite_cuda(source)
