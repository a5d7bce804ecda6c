"""Snippets for each rule of the scan of CUDA and C++: what it must find, and what looks similar."""

from __future__ import annotations

#: By rule. A line that ends in ``!! rule`` must get a finding of that rule.
CUDA: dict[str, tuple[str, str]] = {
    "include-path": (
        """
#include "/etc/passwd" // !! include-path
#include "../secret.h" // !! include-path
#include MACRO // !! include-path
""",
        "#include <cuda_runtime.h>\n#include <torch/extension.h>\n#include <cub/block/block_reduce.cuh>\n",
    ),
    "token-pasting": (
        """
#define JOIN(a, b) a##b // !! token-pasting
#define LONG(a) \\
  int x; \\
  int y_ ## a; /* !! token-pasting */
""",
        '#define SAY(f, ...) print(f, ##__VA_ARGS__)\n#define TEXT(a) #a\nconst char* s = "a ## b"; // a ## b\n',
    ),
    "inline-assembly": (
        """
__device__ int lane() {
  int x;
  asm volatile("mov.u32 %0, %laneid;" : "=r"(x)); // !! inline-assembly
  return x;
}
""",
        '// asm\nint assembly = 1; const char* s = "asm";\n',
    ),
    "processes": (
        """
void host() {
  system("ls"); // !! processes
  if (std::system("ls")) return; // !! processes
  ::fork(); // !! processes
  return execl("a", 0); // !! processes
}
#define RUN(x) system(x) // !! processes
""",
        "int system(int x);\nvoid host(File file) { file.system(1); shell->popen(); mine::fork(2); int fork = 1; }\n",
    ),
    "foreign-functions": ('void host() { dlopen("libx.so", 1); } // !! foreign-functions\n', "// dlopen(\nint dl;\n"),
    "host-files": (
        """
void host() {
  int file = open("x", 0); // !! host-files
  std::ifstream in("x"); // !! host-files
}
""",
        "void host(F file) { file.open(1); bool open = true; if (open) return; }\n",
    ),
    "network": ("int s = socket(1, 2, 3); // !! network\n", "int connect = 1; struct socket {};\n"),
    "threads": (
        "void host() { std::thread t(work); pthread_create(0, 0, 0, 0); } // !! threads\n",
        "int thread = threadIdx.x; // std::thread\n",
    ),
    "low-precision": (
        """
#include <cuda_fp16.h> // !! low-precision
__device__ float f(const __half* x) { return __half2float(*x); } // !! low-precision
__device__ float g(half x); // !! low-precision
__device__ float h(__nv_bfloat16 x); // !! low-precision
using T = std::vector<half>; // !! low-precision
using U = at::Half; // !! low-precision
using namespace nvcuda::wmma; // !! low-precision
__device__ void m() { asm("mma.sync.m16n8k8.row.col.f32.tf32.tf32.f32"); } // !! low-precision, inline-assembly
""",
        """
int half = n / 2;
int x = half * 2 + (half);
bool wrong = tensor.scalar_type() == at::kHalf || type == at::ScalarType::Half;
const char* words = "no .f16 here";
""",
    ),
    "streams": (
        """
void host() {
  cudaStream_t s;
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); // !! streams
  auto p = at::cuda::getStreamFromPool(); // !! streams
}
""",
        "void host() { cudaStream_t s = at::cuda::getCurrentCUDAStream(); cudaStreamSynchronize(s); }\n",
    ),
    "graphs": (
        "void host(cudaStream_t s) { cudaStreamBeginCapture(s, mode); } // !! graphs\n",
        "struct Graph {}; void host(Graph g);\n",
    ),
    "shared-device-memory": (
        """
void host() {
  cudaMallocManaged(&p, 4); // !! shared-device-memory
  cudaIpcOpenMemHandle(&p, h, 0); // !! shared-device-memory
  cudaMemcpyPeerAsync(a, 0, b, 1, 4, s); // !! shared-device-memory
}
""",
        "void host() { cudaMalloc(&p, 4); cudaMemcpyAsync(a, b, 4, kind, s); cudaMemsetAsync(a, 0, 4, s); }\n",
    ),
    "host-read": (
        """
void host(torch::Tensor x, torch::Tensor scale) {
  k<<<1, 1>>>(x.data_ptr<float>(), *scale.data_ptr<float>()); // !! host-read
  float first = x.const_data_ptr<float>()[0]; // !! host-read
}
""",
        """
void host(torch::Tensor x, torch::Tensor scale) {
  auto own = x.to(torch::kCPU);
  const torch::Tensor copy(x.cpu());
  auto table = torch::empty({4}, torch::kFloat32);
  table.data_ptr<float>()[0] = 1.5f;
  float y = own.data_ptr<float>()[0] + *copy.data_ptr<float>() * scale.item<float>();
  k<<<1, 1>>>(x.data_ptr<float>() + 1, pointers[0].data_ptr<float>(), y);
}
""",
    ),
    "device-clock": (
        """
__device__ long t() {
  return clock64() + clock(); // !! device-clock
}
__device__ void u() { asm("mov.u64 %0, %globaltimer;"); } // !! device-clock, inline-assembly
""",
        "int clock = 3; void host(T timer) { timer.clock(); cudaEventElapsedTime(&ms, a, b); }\n",
    ),
    "device-sleep": ("__device__ void w() { __nanosleep(100); } // !! device-sleep\n", "// __nanosleep\n"),
    "l2-persistence": (
        """
void host() {
  attribute.accessPolicyWindow.num_bytes = 4; // !! l2-persistence
  cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 4); // !! l2-persistence
}
""",
        "void host() { cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 4); }\n",
    ),
    "empty-kernel": (
        """
__global__ void nothing(float* x) { /* empty */ } // !! empty-kernel
void host() { nothing<<<1, 1>>>(x); }
""",
        "__global__ void something(float* x) { x[0] = 1; }\nvoid host() { something<<<1, 1>>>(x); }\n",
    ),
    "unlaunched-kernel": (
        """
__global__ void launched(float* x) { x[0] = 1; }
template <int N>
__global__ void __launch_bounds__(256) dead(float* x) { // !! unlaunched-kernel
  x[0] = N;
}
void host() { launched<<<1, 1>>>(x); } // dead<<<1, 1>>>
""",
        """
__global__ void later(float* x);
__global__ void by_address(float* x) { x[0] = 1; }
template <int N>
__global__ void __launch_bounds__(256, 2) by_template(float* x) { x[0] = N; }
__global__ void by_macro(float* x) { x[0] = 1; }
#define LAUNCH by_macro<<<1, 1>>>(x)
void host() {
  LAUNCH;
  cudaLaunchKernel((void*)by_address, grid, block, args, 0, 0);
  launch(by_template<4>);
  later<<<1, 1>>>(x);
}
__global__ void later(float* x) { x[0] = 1; }
""",
    ),
    "device-printing": (
        """
__device__ void helper(int x) {
  if (x) { printf("%d", x); } // !! device-printing
}
""",
        '__device__ int f() { return 1; }\nvoid host() { printf("built"); fprintf(stderr, "x"); }\n',
    ),
    "handlers": ("void host() { std::atexit(f); } // !! handlers\n", "void signal(int x) { }\n"),
    "environment": ('void host() { setenv("a", "b", 1); } // !! environment\n', 'void host() { getenv("a"); }\n'),
    "introspection": (
        "void host() { process_vm_readv(pid, a, 1, b, 1, 0); } // !! introspection\n",
        "void process(int x);\n",
    ),
}
