"""Snippets for each rule of the scan of Python: what it must find, and what looks similar."""

from __future__ import annotations

#: By rule. A line that ends in ``!! rule`` must get a finding of that rule.
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
        torch.zeros_like(x).addmm_(x, x)  # !! heavy-operator
        x.cumsum_(0)  # !! heavy-operator
        x = torch._addmm_activation(x, x, x).cumprod(0)  # !! heavy-operator
        x = torch.cumsum(x, 0)  # !! heavy-operator
        x = torch.ops.mkldnn._linear_pointwise(x, x, None, "none", [], "")  # !! heavy-operator
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
    "host-tensor": (
        """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        self.table = torch.arange(8)  # !! host-tensor
    def forward(self, x):
        y = x * torch.ones(x.shape[-1]) + torch.from_numpy(x.numpy())  # !! host-tensor
        return y + torch.tensor([1.0, 2.0], device="cpu")  # !! host-tensor
""",
        """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        self.weight = torch.nn.Parameter(torch.zeros(8))
        self.register_buffer("table", torch.arange(8))
    def forward(self, x):
        y = x * torch.ones(x.shape[-1], device=x.device) + torch.zeros(4).to(x.device) + torch.tensor(2.0)
        return torch.full(x.shape, 1.0, **self.options) + torch.empty((), dtype=x.dtype), x.cpu().numpy()
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
