"""PyTorch-like names and arguments of the ops (MindSpore: `mindspore.mint`): `dim` and `keepdim` where ops have `axis`.

What has the same arguments in `ops` is taken from there; the others are a line each.
"""
from minispore import ops
from minispore.common.errors import missing
from minispore.mint import nn
from minispore.ops import (
    abs,
    acos,
    acosh,
    addmm,
    arange,
    argmax,
    asin,
    asinh,
    atan,
    atanh,
    bmm,
    broadcast_to,
    ceil,
    clamp,
    cos,
    cosh,
    divide,
    dot,
    eq,
    erf,
    exp,
    expm1,
    eye,
    flatten,
    flip,
    floor,
    floor_divide,
    full,
    full_like,
    ge,
    gt,
    isfinite,
    isinf,
    isnan,
    le,
    linspace,
    log,
    log1p,
    log2,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    lt,
    masked_fill,
    matmul,
    maximum,
    meshgrid,
    minimum,
    mm,
    mul,
    narrow,
    ne,
    neg,
    negative,
    ones,
    ones_like,
    outer,
    pow,
    prod,
    ravel,
    reciprocal,
    remainder,
    reshape,
    roll,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    sum,
    swapaxes,
    tan,
    tanh,
    tile,
    topk,
    tril,
    triu,
    trunc,
    unsqueeze,
    where,
    zeros,
    zeros_like,
)


def add(input, other, *, alpha=1): return ops.add(input, other if alpha == 1 else ops.mul(other, alpha))
def sub(input, other, *, alpha=1): return ops.sub(input, other if alpha == 1 else ops.mul(other, alpha))


def div(input, other, *, rounding_mode=None):
    """input / other; rounding_mode "floor" or "trunc" rounds the quotient."""
    if rounding_mode not in (None, "floor", "trunc"):
        raise ValueError(f"mint.div: rounding_mode {rounding_mode!r} must be None, 'floor' or 'trunc'")
    if rounding_mode == "floor":
        return ops.floor_div(input, other)
    quotient = ops.div(input, other)
    return ops.trunc(quotient) if rounding_mode else quotient


# ---- reductions -------------------------------------------------------------------------------------------

def mean(input, dim=None, keepdim=False, *, dtype=None): return ops.mean(_as(input, dtype), dim, keepdim)
def all(input, dim=None, keepdim=False): return ops.all(input, dim, keepdim)
def any(input, dim=None, keepdim=False): return ops.any(input, dim, keepdim)
def amax(input, dim=None, keepdim=False): return ops.amax(input, dim, keepdim)
def amin(input, dim=None, keepdim=False): return ops.amin(input, dim, keepdim)
def argmin(input, dim=None, keepdim=False): return ops.argmin(input, dim, keepdim)
def logsumexp(input, dim, keepdim=False): return ops.logsumexp(input, dim, keepdim)
def norm(input, p="fro", dim=None, keepdim=False, *, dtype=None): return ops.norm(input, p, dim, keepdim, dtype=dtype)
def var(input, dim=None, *, correction=1, keepdim=False): return ops.var(input, dim, correction, keepdim)
def std(input, dim=None, *, correction=1, keepdim=False): return ops.std(input, dim, correction, keepdim)


def max(input, dim=None, keepdim=False):
    """The largest value; with dim: (values, indices)."""
    return ops.amax(input) if dim is None else ops.max(input, dim, keepdim)


def min(input, dim=None, keepdim=False):
    """The smallest value; with dim: (values, indices)."""
    return ops.amin(input) if dim is None else ops.min(input, dim, keepdim)


# ---- shapes, order, picking ---------------------------------------------------------------------------------

def cat(tensors, dim=0): return ops.concat(tensors, dim)
def stack(tensors, dim=0): return ops.stack(tensors, dim)
def split(tensor, split_size_or_sections, dim=0): return ops.split(tensor, split_size_or_sections, dim)
def chunk(input, chunks, dim=0): return ops.chunk(input, chunks, dim)
def unbind(input, dim=0): return ops.unstack(input, dim)
def squeeze(input, dim=None): return ops.squeeze(input, dim)
def permute(input, dims): return ops.transpose(input, dims)
def transpose(input, dim0, dim1): return ops.swapaxes(input, dim0, dim1)
def repeat_interleave(input, repeats, dim=None): return ops.repeat_interleave(input, repeats, dim)
def cumsum(input, dim, dtype=None): return ops.cumsum(input, dim, dtype)
def sort(input, *, dim=-1, descending=False, stable=True): return ops.sort(input, dim, descending)
def argsort(input, dim=-1, descending=False, stable=True): return ops.argsort(input, dim, descending)
def gather(input, dim, index): return ops.gather_elements(input, dim, index)
def index_select(input, dim, index): return ops.gather(input, index, dim)


def _as(x, dtype):
    return x if dtype is None else ops.cast(x, dtype)


__getattr__ = missing(__name__, globals(), {"distributed": "minispore.mint.distributed"})
