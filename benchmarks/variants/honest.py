"""Honest kinds: each computes the same in float32 with other arithmetic.

A few lose more than rounding where the arithmetic they are about is ill-conditioned. There the judge refuses them
rightly, and ``IMPRECISE`` leaves those cases out:

- a variance as the mean of squares less the square of the mean loses as many digits as the two have in common. Groups
  of two, three or nine values are often close together: behind a Hardtanh the square of the mean is up to 75,000 times
  the variance;
- the sums of 64 lanes added one after another err in one direction where all elements are alike. In instance norm they
  are under the cotangent of ones, and the bias's gradient, in truth zero, adds that up over all pixels;
- on the CPU, torch's backward of layer norm and of batch norm, and its product with a vector, add up rows of 32768
  elements one after another: under the cotangent of ones they err by 6e-6 to 5e-5.
"""

from __future__ import annotations

from benchmarks.variants.kind import CONV, GEMMS, GROUP_NORM, HARDTANH, MIN, Kind, left_out

TWO_PASS = Kind("two_pass", "the mean first, then squares of what is centred")
SHARED = (
    TWO_PASS,
    Kind(
        "single_pass",
        "the variance as the mean of squares less the square of the mean",
        """
def moments(rows):
    mean = row_sum(rows) / rows.shape[-1]
    return mean, inverse_root(row_sum(rows * rows) / rows.shape[-1] - mean * mean)
""",
    ),
    Kind(
        "shifted",
        "a single pass over what is left once the row's first element is subtracted",
        """
def moments(rows):
    first = rows[..., :1]
    shifted = rows - first
    mean = row_sum(shifted) / rows.shape[-1]
    return mean + first, inverse_root(row_sum(shifted * shifted) / rows.shape[-1] - mean * mean)
""",
    ),
    Kind(
        "welford",
        "moments of up to 16 blocks of a row, merged one after another",
        """
def moments(rows):
    count, mean, squares = 0, 0.0, 0.0
    for block in rows.chunk(16, -1):
        extent = block.shape[-1]
        other = row_sum(block) / extent
        centred = block - other
        delta = other - mean
        count += extent
        mean = mean + delta * (extent / count)
        squares = squares + row_sum(centred * centred) + delta * delta * (extent * (count - extent) / count)
    return mean, inverse_root(squares / count)
""",
    ),
    Kind(
        "pairwise",
        "sums of rows by halves",
        """
def row_sum(x):
    while x.shape[-1] > 1:
        x = F.pad(x, (0, x.shape[-1] % 2))
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x
""",
    ),
    Kind(
        "blocked",
        "sums of rows in two levels, blocks of 32 first",
        """
def row_sum(x):
    x = F.pad(x, (0, -x.shape[-1] % 32))
    return x.reshape(*x.shape[:-1], -1, 32).sum(-1).sum(-1, keepdim=True)
""",
    ),
    Kind(
        "strided",
        "sums of rows by 64 lanes that stride over them, the lanes' sums backwards",
        """
def row_sum(x):
    lanes = F.pad(x, (0, -x.shape[-1] % 64)).reshape(*x.shape[:-1], -1, 64).sum(-2)
    total = lanes[..., 63:]
    for lane in range(62, -1, -1):
        total = total + lanes[..., lane : lane + 1]
    return total
""",
    ),
    Kind(
        "compensated",
        "Kahan's sums of rows, in 64 steps at most",
        """
def row_sum(x):
    width = max(32, -(-x.shape[-1] // 64))
    total = torch.zeros_like(x[..., :1]).expand(*x.shape[:-1], width)
    lost = torch.zeros_like(total)
    for block in F.pad(x, (0, -x.shape[-1] % width)).split(width, -1):
        block = block - lost
        larger = total + block
        lost = (larger - total) - block
        total = larger
    return total.sum(-1, keepdim=True)
""",
    ),
    Kind(
        "atomics",
        "sums of blocks added by index_add_, rows and columns; on a GPU in the order of chance",
        """
def row_sum(x):
    width = max(64, -(-x.shape[-1] // 256))
    parts = F.pad(x, (0, -x.shape[-1] % width)).reshape(-1, width).sum(-1)
    rows = x.numel() // x.shape[-1]
    places = torch.arange(rows, device=x.device).repeat_interleave(parts.numel() // rows)
    return torch.zeros(rows, device=x.device).index_add_(0, places, parts).reshape(*x.shape[:-1], 1)


def column_sum(x):
    places = torch.arange(x.shape[1], device=x.device).repeat(x.shape[0])
    return torch.zeros(x.shape[1], device=x.device).index_add_(0, places, x.reshape(-1))
""",
    ),
    Kind(
        "ones_product",
        "sums of rows and columns as products with a vector of ones",
        """
def row_sum(x):
    return x @ torch.ones(x.shape[-1], 1, device=x.device)


def column_sum(x):
    return (torch.ones(1, x.shape[0], device=x.device) @ x).squeeze(0)
""",
    ),
    Kind(
        "column_major",
        "sums of rows over a transposed copy",
        """
def row_sum(x):
    return x.reshape(-1, x.shape[-1]).t().contiguous().sum(0).reshape(*x.shape[:-1], 1)
""",
    ),
    Kind(
        "scale_shift",
        "normalisation, weight and bias in one multiplication and one addition",
        """
def norm_forward(x, weight, bias, groups):
    rows = rows_of(x, groups)
    mean, rstd = moments(rows)
    per_channel = x.shape[1] // groups
    mean_of = mean.reshape(-1, groups, 1).expand(-1, -1, per_channel).reshape(*x.shape[:2], 1)
    rstd_of = rstd.reshape(-1, groups, 1).expand(-1, -1, per_channel).reshape(*x.shape[:2], 1)
    scale = rstd_of * weight[:, None]
    return x * scale + (bias[:, None] - mean_of * scale), (x - mean_of) * rstd_of, rstd
""",
    ),
    Kind(
        "float64_moments",
        "moments, and the sums of the backward, in float64",
        """
def moments(rows):
    rows = rows.double()
    mean = rows.mean(-1, keepdim=True)
    return mean.float(), (rows.var(-1, unbiased=False, keepdim=True) + EPS).rsqrt().float()


def row_sum(x):
    return x.double().sum(-1, keepdim=True).float()
""",
    ),
    Kind(
        "sample_by_sample",
        "group norm of one sample after another, the columns' sums with it",
        """
def norm_forward(x, weight, bias, groups, whole=norm_forward):
    parts = [whole(sample, weight, bias, groups) for sample in x.split(1)]
    return tuple(torch.cat(part) for part in zip(*parts))


def column_sum(x):
    total = x[0]
    for row in x[1:]:
        total = total + row
    return total
""",
    ),
    Kind(
        "late_mean",
        "the backward from the input's sums: one coefficient for it, one constant, in float32",
        """
def input_gradient(dhat, hat, rstd):
    slope = -rstd * row_sum(dhat * hat) / hat.shape[-1]
    return dhat * rstd + (hat * slope + (-rstd * row_sum(dhat) / hat.shape[-1]))
""",
    ),
    Kind("functional", "PyTorch's own operators in other words", autograd=True),
    Kind(
        "decomposed",
        "PyTorch's var_mean, differentiated by autograd",
        """
def norm(x, weight, bias, groups):
    rows = x.reshape(x.shape[0], groups, -1)
    variance, mean = torch.var_mean(rows, -1, correction=0, keepdim=True)
    hat = (rows - mean) / torch.sqrt(variance + EPS)
    return hat.reshape(x.shape) * weight[:, None] + bias[:, None]
""",
        autograd=True,
    ),
    Kind(
        "layer_norm",
        "layer norm of each group, then weight and bias",
        """
def norm(x, weight, bias, groups):
    rows = x.reshape(x.shape[0], groups, -1)
    hat = F.layer_norm(rows, rows.shape[-1:], eps=EPS)
    return torch.addcmul(bias[:, None], hat.reshape(x.shape), weight[:, None])
""",
        autograd=True,
    ),
    Kind(
        "batch_norm",
        "batch norm in which every group of every sample is a channel",
        """
def norm(x, weight, bias, groups):
    rows = x.reshape(1, x.shape[0] * groups, -1)
    if rows.shape[-1] > 1:
        hat = F.batch_norm(rows, None, None, training=True, eps=EPS)
    else:
        hat = rows * 0
    return hat.reshape(x.shape) * weight[:, None] + bias[:, None]
""",
        autograd=True,
    ),
    Kind(
        "compiled",
        "torch.compile of PyTorch's own operators",
        """
class ModelNew(ModelNew):
    def __init__(self, *arguments):
        super(ModelNew, self).__init__(*arguments)
        self.compiled = torch.compile(super(ModelNew, self).forward)

    def forward(self, x):
        return self.compiled(x)
""",
        autograd=True,
        device="cuda",
    ),
)
PRODUCTS = (
    Kind(
        "split_k",
        "products in four parts along the summed dimension, added at the end",
        """
def product(a, b):
    parts = [left @ right for left, right in zip(a.chunk(4, 1), b.chunk(4, 0))]
    return torch.stack(parts).sum(0)
""",
    ),
    Kind(
        "swapped_operands",
        "the transposed product of transposed operands",
        """
def product(a, b):
    return (b.t().contiguous() @ a.t().contiguous()).t()
""",
    ),
    Kind(
        "accumulated",
        "products added up over slabs of the summed dimension, 16 wide or wider",
        """
def product(a, b):
    width = max(16, -(-a.shape[1] // 64))
    total = torch.zeros(a.shape[0], b.shape[1], device=a.device)
    for left, right in zip(a.split(width, 1), b.split(width, 0)):
        total = torch.addmm(total, left, right)
    return total
""",
    ),
    Kind(
        "split_k_atomics",
        "products in eight parts along the summed dimension, added by index_add_",
        """
def product(a, b):
    total = torch.zeros(a.shape[0], b.shape[1], device=a.device)
    rows = torch.arange(a.shape[0], device=a.device)
    for left, right in zip(a.chunk(8, 1), b.chunk(8, 0)):
        total.index_add_(0, rows, left @ right)
    return total
""",
    ),
    Kind(
        "tiled_rows",
        "products of up to 16 rows at a time",
        """
def product(a, b):
    return torch.cat([rows @ b for rows in a.split(max(16, -(-a.shape[0] // 64)))])
""",
    ),
    Kind(
        "half_splits",
        "operands as sums of three bfloat16 numbers, six products with float32 sums",
        """
def parts_of(x):
    high = x.bfloat16().float()
    middle = (x - high).bfloat16().float()
    return high, middle, x - high - middle


def product(a, b):
    (a0, a1, a2), (b0, b1, b2) = parts_of(a), parts_of(b)
    return (a2 @ b0 + a1 @ b1 + a0 @ b2) + (a1 @ b0 + a0 @ b1) + a0 @ b0
""",
    ),
)
OWN = {
    HARDTANH: (
        Kind(
            "rational_mish",
            "tanh of softplus as a fraction of exponentials",
            """
def tanh_softplus(h):
    e = torch.exp(h)
    n = e * (e + 2)
    return n / (n + 2)
""",
        ),
        Kind(
            "minimum_maximum",
            "Hardtanh by two comparisons, softplus by log1p",
            """
def hardtanh(z):
    return torch.where(z > 1, 1.0, torch.where(z < -1, -1.0, z))


def tanh_softplus(h):
    return torch.tanh(torch.log1p(torch.exp(h)))
""",
        ),
    ),
    MIN: (
        Kind(
            "minimum_of_blocks",
            "the minimum of blocks of eight features, then of the blocks",
            """
def least(y):
    blocks = F.pad(y, (0, -y.shape[1] % 8), value=float("inf")).reshape(y.shape[0], -1, 8)
    values, lanes = blocks.min(2)
    value, block = values.min(1, keepdim=True)
    return value, block * 8 + lanes.gather(1, block)
""",
        ),
        Kind(
            "amin",
            "amin, differentiated by autograd",
            """
def least(y):
    return torch.amin(y, 1, keepdim=True), None
""",
            autograd=True,
        ),
        Kind(
            "sorted",
            "the first of a sorted row",
            """
def least(y):
    values, places = torch.sort(y, 1)
    return values[:, :1], places[:, :1]
""",
        ),
    ),
    CONV: (
        Kind(
            "convolutions",
            "PyTorch's convolutions: on a GPU cuDNN's, in TF32 unless it is told otherwise",
            """
def convolved(x, weight, stride):
    return F.conv_transpose2d(x, weight, stride=stride)


def convolution_gradients(dz, x, weight, stride):
    dweight = torch.nn.grad.conv2d_weight(dz, weight.shape, x, stride=stride)
    return F.conv2d(dz, weight, stride=stride), dweight
""",
        ),
        Kind(
            "tap_by_tap",
            "one tap of the kernel after another, added where it lands",
            """
def convolved(x, weight, stride):
    height, width = x.shape[2:]
    taps = weight.shape[2:]
    extents = [(extent - 1) * stride + taps[axis] for axis, extent in enumerate((height, width))]
    z = torch.zeros(x.shape[0], weight.shape[1], *extents, device=x.device)
    for row in range(taps[0]):
        for column in range(taps[1]):
            part = torch.einsum("nihw,io->nohw", x, weight[:, :, row, column])
            z[:, :, row : row + height * stride : stride, column : column + width * stride : stride] += part
    return z
""",
        ),
        Kind(
            "ndtr",
            "the normal distribution function of torch.special",
            """
def normal_cdf(z):
    return torch.special.ndtr(z)
""",
        ),
    ),
}


#: Cases in which a kind loses more than rounding, by problem and kind.
IMPRECISE = {
    GROUP_NORM: {
        "single_pass": {"flat_2d"},
        "layer_norm": {"cpu"},
        "batch_norm": {"cpu"},
        "ones_product": {"cpu"},
    },
    HARDTANH: {"single_pass": {"odd", "pairs", "bias_of_one", "bias_a_sample"}},
    MIN: {"single_pass": {"odd", "pairs"}},
    CONV: {"strided": {"instance"}},
}


def kinds_of(problem: str) -> tuple[Kind, ...]:
    """The honest kinds of a problem."""
    products = PRODUCTS if problem in (*GEMMS, CONV) else ()
    return left_out((*SHARED, *products, *OWN.get(problem, ())), IMPRECISE.get(problem, {}))
