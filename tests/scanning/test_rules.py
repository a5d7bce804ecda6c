"""Tests each rule of the static scan: it finds its target on the right lines, and nothing similar.

A line of a snippet that ends in ``!! rule`` must get a finding of that rule, every other line none.
"""

from __future__ import annotations

import re

import pytest

from harness.records.record import REPORT
from harness.scanning.rules import RULES
from harness.scanning.scan import scan

MARK = re.compile(r"!! ([a-z0-9, -]+)")


def found(text: str) -> set[tuple[str, int | None]]:
    return {(finding.kind, finding.line) for finding in scan(text)}


def marked(text: str) -> set[tuple[str, int | None]]:
    return {
        (rule.strip(), number)
        for number, line in enumerate(text.split("\n"), 1)
        for match in MARK.finditer(line)
        for rule in match.group(1).split(",")
    }


PYTHON: dict[str, tuple[str, str]] = {
    "computed-code": (
        """
import builtins
exec(text)  # !! computed-code
y = eval("1 + " + text)  # !! computed-code
builtins.exec(text)  # !! computed-code
code = compile(text, "x", "exec")  # !! computed-code
""",
        """
import re
import torch
pattern = re.compile("a")
model.eval()
self.exec(text)
""",
    ),
    "computed-names": (
        """
import importlib
import torch
__import__(name)  # !! computed-names
importlib.import_module("to" + "rch")  # !! computed-names
getattr(torch, name)(x)  # !! computed-names
spec = importlib.util.spec_from_file_location("a", path)  # !! computed-names
""",
        """
import importlib
import torch
__import__("math")
importlib.import_module("torch")
namespace = getattr(torch.ops, name)
value = getattr(self, name)
size = getattr(torch, "float32")
""",
    ),
    "encoded-data": (
        """
import base64  # !! encoded-data
from zlib import decompress  # !! encoded-data
def f():
    import pickle, json  # !! encoded-data
    __import__("marshal")  # !! encoded-data
""",
        "import hashlib\nimport json\nname = hashlib.sha256(b'x').hexdigest()\n",
    ),
    "packages": (
        """
import subprocess, sys  # !! processes
import os
subprocess.run([sys.executable, "-m", "pip", "install", "x"])  # !! packages
os.system("pip install ninja")  # !! packages, processes
import pip  # !! packages
""",
        "print('see how to install it')\npipe = find('pipeline')\n",
    ),
    "foreign-functions": (
        """
import ctypes  # !! foreign-functions
from ctypes import CDLL  # !! foreign-functions
from cffi import FFI  # !! foreign-functions
""",
        "from torch.utils.cpp_extension import load_inline\nimport cmath\n",
    ),
    "processes": (
        """
import os
from os import fork as split
os.system("ls")  # !! processes
os.execv("/bin/sh", [])  # !! processes, outside-paths
split()  # !! processes
os._exit(0)  # !! processes
""",
        "import os\nn = os.cpu_count()\nos.makedirs('build', exist_ok=True)\nself.system('x')\n",
    ),
    "network": (
        """
import urllib.request  # !! network
from http import client  # !! network
import torch
torch.hub.load("a", "b")  # !! network
""",
        "import html\nimport torch\nrequests = 3\nhttp = 4\n",
    ),
    "threads": (
        """
import threading  # !! threads
from concurrent.futures import ThreadPoolExecutor  # !! threads
import torch.multiprocessing as mp  # !! threads
from torch import multiprocessing  # !! threads
""",
        "import torch\nimport queue\nthreads = 256\n",
    ),
    "handlers": (
        """
import atexit, sys  # !! handlers
import signal  # !! handlers
sys.settrace(f)  # !! handlers
class A:
    def __del__(self):  # !! handlers
        pass
""",
        "import sys\nprint(sys.version)\n",
    ),
    "environment": (
        """
import os
from os import environ
os.environ["A"] = "1"  # !! environment
os.environ.update(A="1")  # !! environment
environ.pop("B")  # !! environment
del os.environ["A"]  # !! environment
os.putenv("A", "1")  # !! environment
""",
        "import os\na = os.environ['HOME']\nb = os.environ.get('CUDA_HOME', '')\nenviron = {}\nenviron['x'] = 1\n",
    ),
    "outside-paths": (
        """
data = open("/proc/self/maps").read()  # !! outside-paths
pid = 3
memory = open(f"/proc/{pid}/mem")  # !! outside-paths
home = "~/.cache"  # !! outside-paths
""",
        '''"""/proc/self is not read here."""
load(include=["/usr/local/cuda/include"])
kernel = open("kernel.cu")
a = "/"
pattern = "b c h w -> b (c h) w/2"
null = open("/dev/null")
''',
    ),
    "introspection": (
        """
import gc, sys
import inspect
import os
m = sys.modules["torch"]  # !! introspection
gc.get_objects()  # !! introspection
f = sys._getframe(1).f_back  # !! introspection
inspect.stack()  # !! introspection
os.getppid()  # !! introspection
f.__closure__[0].cell_contents  # !! introspection
""",
        "import gc\nimport inspect\ngc.collect()\ninspect.signature(f)\nframe.f = 1\n",
    ),
    "patching": (
        """
import builtins
import sys
import time
import torch
import torch.nn.functional as F
from torch.cuda import Event
torch.tanh = mine  # !! patching
Event.elapsed_time = mine  # !! patching
time.perf_counter, time.monotonic = a, b  # !! patching
setattr(torch, "empty", mine)  # !! patching
F.gelu = mine  # !! patching
del torch.allclose  # !! patching
T = torch.Tensor
T.__add__ = mine  # !! patching
vars(torch)["relu"] = mine  # !! patching
torch.__dict__.update(relu=mine)  # !! patching
builtins.print = mine  # !! patching
__import__("torch").exp = mine  # !! patching
sys.modules["time"].sleep = mine  # !! patching, introspection
sys.modules["x"] = mine  # !! patching, introspection
""",
        """
import torch
class M(torch.nn.Module):
    def __init__(self):
        self.weight = torch.nn.Parameter(torch.ones(3))
        setattr(self, "x", 1)
        self.gn.weight = self.weight
    @staticmethod
    def forward(ctx, x):
        ctx.n = 3
        settings = {}
        settings["n"] = 3
        y = torch.empty(3)
        y[0] = 1
""",
    ),
    "torch-settings": (
        """
import torch
from torch.backends import cudnn
torch.backends.cuda.matmul.allow_tf32 = True  # !! torch-settings
cudnn.benchmark = True  # !! torch-settings
torch.set_float32_matmul_precision("high")  # !! torch-settings
torch.use_deterministic_algorithms(True)  # !! torch-settings
with torch.autocast("cuda"):  # !! torch-settings
    pass
torch.autograd._enable_record_function(False)  # !! torch-settings
with torch.backends.cudnn.flags(allow_tf32=True):  # !! torch-settings
    pass
""",
        """
import torch
if torch.backends.cuda.matmul.allow_tf32:
    print(torch.backends.cudnn.version(), torch.backends.cudnn.is_available(), torch.get_default_dtype())
""",
    ),
    "low-precision": (
        """
import torch
HALF = torch.float16
y = x.half()  # !! low-precision
y = x.to(torch.bfloat16)  # !! low-precision
y = x.to(HALF)  # !! low-precision
y = torch.empty(3, dtype=torch.half)  # !! low-precision
""",
        """
import torch
if x.dtype == torch.float16 or x.dtype in (torch.half, torch.bfloat16):
    raise ValueError("float32 only")
y = x.to(torch.float32).double()
half = n // 2
names = {torch.float16: "half"}
""",
    ),
    "heavy-operator": (
        """
import torch
import torch.nn as nn
import torch.nn.functional as F
def product(a, b):
    return torch.matmul(a, b)  # !! heavy-operator
class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        return F.linear(x, w)  # !! heavy-operator
    @staticmethod
    def backward(ctx, dy):
        w, = ctx.saved_tensors
        return dy @ w, dy.t().mm(dy)  # !! heavy-operator
class Other(nn.Module):
    def forward(self, x):
        return torch.softmax(x, 0)  # !! heavy-operator
class ModelNew(nn.Module):
    def __init__(self):
        self.conv = nn.Conv2d(1, 1, 3).cuda()
        self.other = Other()
        self.fast = torch.compile(self.other)  # !! heavy-operator
        self.layers = nn.Sequential(nn.ReLU(), nn.Linear(3, 3))
    def forward(self, x):
        x = self.conv(x)  # !! heavy-operator
        x = self.layers(x)  # !! heavy-operator
        x = torch.ops.aten.mm(x, x)  # !! heavy-operator
        values = x.sort().values  # !! heavy-operator
        return product(x, x)
""",
        """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
class Model(nn.Module):
    def forward(self, x):
        return torch.matmul(x, x)
def check():
    return torch.matmul(a, b)
extension = load_inline(name="x", cpp_sources="", cuda_sources="int matmul();")
class ModelNew(nn.Module):
    def __init__(self):
        self.conv = nn.Conv2d(1, 1, 3)
        self.extension = extension
        w = torch.mm(a, b)
    def forward(self, x):
        names = [3, 1]
        names.sort()
        y = extension.matmul(x, self.conv.weight)
        y = self.extension.softmax(y)
        y = torch.ops.mine.linear(y)
        return torch.relu(y) + torch.tanh(y)
""",
    ),
    "nested-autograd": (
        """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Op.apply(x)
class Op(torch.autograd.Function):
    @staticmethod
    def backward(ctx, dy):
        with torch.enable_grad():  # !! nested-autograd
            y = f(ctx.x)
        y.backward(dy)  # !! nested-autograd
        return torch.autograd.grad(y, ctx.x, dy)  # !! nested-autograd
""",
        """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return Op.apply(x)
class Op(torch.autograd.Function):
    @staticmethod
    def backward(ctx, dy):
        return library.backward(dy)
def check(x):
    ModelNew()(x).backward()
    return torch.autograd.grad(x, x)
""",
    ),
    "requires-grad": (
        """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = kernel(x).requires_grad_()  # !! requires-grad
        y.requires_grad = True  # !! requires-grad
        return y
""",
        """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        self.scale = torch.ones(3).requires_grad_()
    def forward(self, x):
        return Op.apply(x) if x.requires_grad else kernel(x)
def check(x):
    return x.detach().requires_grad_()
""",
    ),
    "fallback": (
        """
import torch
import torch.nn as nn
class ModelNew(nn.Module):
    def __init__(self):
        self.norm = nn.GroupNorm(1, 1)
    def forward(self, x):
        try:
            return library.forward(x)
        except RuntimeError:
            return torch.tanh(x)  # !! fallback
    def other(self, x):
        try:
            return library.forward(x)
        except Exception:
            return self.norm(x)  # !! fallback, heavy-operator
""",
        """
import torch
try:
    import ninja
except ImportError:
    ninja = None
def forward(x):
    try:
        return library.forward(x)
    except RuntimeError as error:
        torch.cuda.empty_cache()
        raise RuntimeError(f"the kernel failed: {error}")
def without_gpu(x):
    return library.forward(x) if x.is_cuda else torch.tanh(x)
""",
    ),
    "fixed-shape": (
        """
import torch
FULL = (112, 64, 512, 512)
if x.shape == FULL:  # !! fixed-shape
    fast(x)
if tuple(x.shape) == (112, 64, 512, 512) and fast:  # !! fixed-shape
    fast(x)
if x.size() == torch.Size([4, 64]):  # !! fixed-shape
    fast(x)
y = fast(x) if x.shape[0] == 112 else slow(x)  # !! fixed-shape
if x.shape in ((1, 2), (3, 4)):  # !! fixed-shape
    fast(x)
elif x.numel() == 1024:  # !! fixed-shape
    fast(x)
match x.shape:  # !! fixed-shape
    case (1, 2):
        fast(x)
""",
        """
import torch
assert x.shape == (4, 64)
if x.shape != (4, 64):
    raise ValueError("another shape")
if x.shape == y.shape or x.shape[1] % 64 == 0 or x.shape[0] == 1 or x.dim() == 4 or x.numel() >= 1024:
    fast(x)
grid = (x.shape[0] + 255) // 256
""",
    ),
    "keyed-cache": (
        """
cache = {}
y = cache[x.data_ptr()]  # !! keyed-cache
key = (x.data_ptr(), x._version)  # !! keyed-cache
if id(x) in cache:  # !! keyed-cache
    pass
y = cache.get(x.shape)  # !! keyed-cache
y = cache[tuple(x.shape), x.dtype]  # !! keyed-cache
if x._version == self.last:  # !! keyed-cache
    pass
""",
        """
cache = {}
aligned = x.data_ptr() % 16 == 0
if x.data_ptr() == y.data_ptr():
    raise ValueError("they overlap")
part = y[: x.shape[0]]
rows = x.shape[0]
launch(x.data_ptr(), y.data_ptr())
scratch = cache.get(x.device)
name = options["shape"]
pointers = [ctypes.c_void_p(one.data_ptr()) for one in (x, y)]
""",
    ),
    "tensor-subclass": (
        """
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
class Lazy(torch.Tensor):  # !! tensor-subclass
    @classmethod
    def __torch_function__(cls, f, types, args=(), kwargs=None):  # !! tensor-subclass
        pass
class Also(Tensor):  # !! tensor-subclass
    pass
class Mode(TorchFunctionMode):  # !! tensor-subclass
    pass
y = torch.Tensor._make_subclass(Lazy, x)  # !! tensor-subclass
""",
        "import torch\nclass A(torch.nn.Module):\n    pass\nclass B(torch.autograd.Function):\n    pass\n",
    ),
    "streams": (
        """
import torch
side = torch.cuda.Stream()  # !! streams
with torch.cuda.stream(side):  # !! streams
    pass
""",
        "import torch\nnow = torch.cuda.current_stream()\ntorch.cuda.synchronize()\nbytes = stream()\n",
    ),
    "graphs": (
        """
import torch
graph = torch.cuda.CUDAGraph()  # !! graphs
with torch.cuda.graph(graph):  # !! graphs
    pass
""",
        "import torch\ngraph = {}\ngraph[1] = 2\n",
    ),
    "unread-source": (
        """
from torch.utils.cpp_extension import load_inline, load
from pathlib import Path
load_inline(
    name="x",
    cpp_sources="",
    cuda_sources=decoded(data),  # !! unread-source
)
load("x", [Path("kernel.cu")])
load("x", sources=find())  # !! unread-source
""",
        """
from torch.utils.cpp_extension import load_inline
SOURCE = "int f() { return 1; }"
def build(source):
    load_inline(name="x", cpp_sources="", cuda_sources=[f"#define A {source}"])
build(SOURCE)
""",
    ),
}

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

AROUND = 'from torch.utils.cpp_extension import load_inline\nSOURCE = r"""%s"""\nload_inline(%s)\n'


@pytest.mark.parametrize("rule", PYTHON)
def test_python_rules_see_what_they_are_for(rule: str) -> None:
    seen, honest = PYTHON[rule]
    assert rule in {name for name, _ in marked(seen)}
    assert found(seen) == marked(seen)
    assert found(honest) == set()


@pytest.mark.parametrize("rule", CUDA)
def test_cuda_rules_see_what_they_are_for(rule: str) -> None:
    seen, honest = (AROUND % (text, 'name="x", cpp_sources="", cuda_sources=SOURCE') for text in CUDA[rule])
    assert rule in {name for name, _ in marked(seen)}
    assert found(seen) == marked(seen)
    assert found(honest) == set()


def test_every_rule_is_tried() -> None:
    assert set(PYTHON) | set(CUDA) | {"not-scanned"} == set(RULES)


def test_a_finding_says_what_is_there_and_what_to_do() -> None:
    (finding,) = scan("\nimport ctypes\n")
    assert (finding.kind, finding.line, finding.level, finding.kernel) == ("foreign-functions", 2, REPORT, None)
    assert finding.message == "import ctypes: functions of any library can be called without torch"
    assert finding.remedy == RULES["foreign-functions"].remedy


SOURCES = {
    "a constant": 'S = """\nint a;\nasm("x"); // !! inline-assembly\n"""\nload_inline("x", "", S)\n',
    "an escaped first line": 'S = """\\\nint a;\nasm(1); // !! inline-assembly\n"""\nload_inline("x", "", S)\n',
    "literals side by side": 'S = ("int a;\\n"\n"asm(1);\\n"  # !! inline-assembly\n)\nload_inline("x", "", S)\n',
    "a sum": 'H = "int a;\\n"\nT = """\nasm(1); // !! inline-assembly\n"""\nload_inline("x", "", [H + T + H])\n',
    "an f-string": (
        'N = 4\nT = """int b;\nasm(1); // !! inline-assembly\n"""\n'
        'load_inline("x", "", f"""#define N {N}\n{T}\nasm({N}); // !! inline-assembly\n""")\n'
    ),
    "format": 'S = """\nint a[{n}];\nasm("{{}}"); // !! inline-assembly\n""".format(n=3)\nload_inline("x", "", S)\n',
    "replace": (
        'S = """\nBODY\nint c;\nasm(1); // !! inline-assembly\n"""\nB = """int a;\nasm(2); // !! inline-assembly"""\n'
        'load_inline("x", "", S.replace("BODY", B))\n'
    ),
    "join": 'load_inline("x", "", "".join([\n"int a;",\n"asm(1);",  # !! inline-assembly\n]))\n',
    "a name split over a sum": 'load_inline("x", "", "void f() { sys" + "tem(0); }")  # !! processes\n',
    "an argument": (
        'def build(name, source):\n    return load_inline(name, "", source)\n'
        'build("x", """\nasm(1); // !! inline-assembly\n""")\n'
    ),
    "a function's result": (
        'def source(n):\n    return f"""\nasm({n}); // !! inline-assembly\n"""\nload_inline("x", "", source(3))\n'
    ),
    "an attribute": 'class A:\n    S = "asm(1);"  # !! inline-assembly\nload_inline("x", "", A.S)\n',
    "a dictionary": 'S = {"a": "asm(1);"}  # !! inline-assembly\nload_inline("x", "", S["a"])\n',
    "given nowhere": 'S = """\n#include <a.h>\nasm(1); // !! inline-assembly\n"""\n',
    "Windows lines": 'S = """\r\nint a;\r\nasm(1); // !! inline-assembly\r\n"""\r\nload_inline("x", "", S)\r\n',
}


@pytest.mark.parametrize("how", SOURCES)
def test_sources_are_followed_to_their_lines(how: str) -> None:
    text = SOURCES[how]
    assert found(text) == marked(text)


def test_plain_text_is_no_source() -> None:
    assert (
        found('"""A docstring: #include and __global__ void k() {} and asm()."""\nNOTE = "call asm(1) here"\n') == set()
    )


def test_one_finding_for_each_rule_and_line_and_not_too_many() -> None:
    many = "import os\n" + "os.system('a'); os.system('b')\n" * 80 + "import ctypes\n"
    findings = scan(many)
    assert len(findings) == 50
    assert findings[-1].kind == "foreign-functions", "a rule keeps its first finding, however many others there are"
    assert len({(finding.kind, finding.line) for finding in findings}) == 50
    assert [finding.line for finding in findings] == sorted(finding.line or 0 for finding in findings)
