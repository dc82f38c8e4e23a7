"""Functional forms of what moves and picks values."""
from functools import cache
from math import prod

import numpy as np

from minispore.common import dtype as mstype
from minispore.common.tensor import Tensor
from minispore.ops import arrange, indexing, order, shape
from minispore.ops import functional as F
from minispore.ops.primitive import normal_axis

__all__ = [
    "argsort", "broadcast_to", "cat", "chunk", "concat", "cumsum", "expand_dims", "flatten", "flip", "gather", "gather_d",
    "gather_elements", "getitem", "index_select", "masked_fill", "movedim", "narrow", "one_hot", "pad", "permute", "ravel",
    "repeat_interleave", "reshape", "roll", "slice_", "sort", "split", "squeeze", "stack", "swapaxes", "swapdims", "tile",
    "topk", "transpose", "tril", "triu", "unbind", "unbroadcast", "unsqueeze", "unstack",
]

getitem = indexing.getitem
tile, slice_ = arrange.Tile(), arrange.Slice()
_reshape, _transpose, _broadcast = map(cache, (shape.Reshape, shape.Transpose, shape.BroadcastTo))


def reshape(input, shape) -> Tensor:
    """Row-major reshape; one -1 is worked out.

    >>> from minispore import Tensor
    >>> reshape(Tensor([[1, 2, 3], [4, 5, 6]]), (3, -1)).shape
    (3, 2)
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return input if input.shape == shape else _reshape(shape)(input)


def flatten(input, order="C", *, start_dim=1, end_dim=-1) -> Tensor:
    """Make the dims start_dim … end_dim one. A number as `order` is taken for start_dim: flatten(x, 1).

    >>> from minispore import Tensor
    >>> flatten(Tensor([[[1, 2], [3, 4]]])).shape
    (1, 4)
    """
    if isinstance(order, int):
        start_dim = order
    elif order != "C":
        raise ValueError(f"flatten: order {order!r}; only row-major 'C' is there, transpose the tensor first")
    if input.ndim == 0:
        return reshape(input, (1,))
    names = {"start_dim": start_dim, "end_dim": end_dim}
    for name, d in names.items():
        if not -input.ndim <= d < input.ndim:
            if input.ndim == 1 and name == "start_dim" and d == 1:
                return input
            raise ValueError(f"flatten: {name} {d} is outside the {input.ndim} dims of shape {input.shape}")
    first, last = start_dim % input.ndim, end_dim % input.ndim
    if first > last:
        raise ValueError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in shape {input.shape}")
    return reshape(input, (*input.shape[:first], prod(input.shape[first:last + 1]), *input.shape[last + 1:]))


def transpose(input, perm) -> Tensor:
    """out's dim i is input's dim perm[i]; no perm reverses all dims."""
    perm = tuple(perm) or tuple(range(input.ndim))[::-1]
    return input if perm == tuple(range(input.ndim)) else _transpose(perm)(input)


def expand_dims(input, axis: int) -> Tensor:
    """A new dim of size 1 at `axis` of the result."""
    if not -input.ndim - 1 <= axis <= input.ndim:
        raise ValueError(f"expand_dims: axis {axis} must be in {-input.ndim - 1} … {input.ndim} (shape {input.shape})")
    axis %= input.ndim + 1
    return reshape(input, (*input.shape[:axis], 1, *input.shape[axis:]))


def squeeze(input, axis=None) -> Tensor:
    """Without the dims of size 1, or without those named."""
    if axis is None:
        axes = {i for i, n in enumerate(input.shape) if n == 1}
    else:
        axes = set(_axes("squeeze", input, axis))
    for a in axes:
        if input.shape[a] != 1:
            raise ValueError(f"squeeze: dim {a} of shape {input.shape} has size {input.shape[a]}; only 1 can go")
    return reshape(input, tuple(n for i, n in enumerate(input.shape) if i not in axes))


def broadcast_to(input, shape) -> Tensor:
    """Repeat dims of size 1, and new leading dims, to `shape`."""
    return input if input.shape == tuple(shape) else _broadcast(tuple(shape))(input)


def concat(tensors, axis=0) -> Tensor:
    """Tensors one behind the other along an axis."""
    return shape.Concat(axis)(tuple(tensors))


cat = concat


def narrow(input, axis: int, start: int, length: int) -> Tensor:
    """`length` entries of one axis from `start` on."""
    if start == 0 and length == input.shape[axis]:
        return input
    begin = tuple(start if i == axis else 0 for i in range(input.ndim))
    end = tuple(start + length if i == axis else n for i, n in enumerate(input.shape))
    return shape.StridedSlice(begin, end, (1,) * input.ndim)(input)


def unbroadcast(grad, shape) -> Tensor:
    """Sum a gradient over the dims that broadcasting repeated."""
    if grad.shape == tuple(shape):
        return grad
    lead = grad.ndim - len(shape)
    axes = tuple(i for i in range(grad.ndim) if i < lead or shape[i - lead] == 1 != grad.shape[i])
    return reshape(F.sum(grad, axes), shape)




def _axes(what: str, input, axes) -> list[int]:
    """Axes counted from the left; ValueError where there is none."""
    out = []
    for a in (axes,) if isinstance(axes, int) else axes:
        if not isinstance(a, (int, np.integer)) or not -input.ndim <= a < input.ndim:
            raise ValueError(f"{what}: axis {a} is outside the {input.ndim} dims of shape {input.shape}")
        out.append(int(a) % input.ndim)
    return out


def unsqueeze(input, dim) -> Tensor: return expand_dims(input, dim)
def ravel(input) -> Tensor: return reshape(input, (-1,))
def permute(input, axis) -> Tensor: return transpose(input, axis)


def swapaxes(input, axis0, axis1) -> Tensor:
    """Two dims exchanged."""
    a, b = _axes("swapaxes", input, (axis0, axis1))
    perm = list(range(input.ndim))
    perm[a], perm[b] = b, a
    return transpose(input, tuple(perm))


swapdims = swapaxes


def movedim(x, source, destination) -> Tensor:
    """Dims moved to other places; the rest keep their order."""
    source, destination = _axes("movedim", x, source), _axes("movedim", x, destination)
    if len(source) != len(destination):
        raise ValueError(f"movedim: {len(source)} dims are to go to {len(destination)} places; name one for each")
    rest = iter(i for i in range(x.ndim) if i not in source)
    target = dict(zip(destination, source, strict=True))
    return transpose(x, tuple(target[i] if i in target else next(rest) for i in range(x.ndim)))


# ---- together and apart ---------------------------------------------------------------------------

def stack(tensors, axis=0) -> Tensor:
    """Tensors of one shape side by side along a new dim."""
    return arrange.Stack(axis)(tensors)


def unstack(input_x, axis=0) -> tuple[Tensor, ...]:
    """The slices along an axis, without that dim."""
    return arrange.Unstack(axis)(input_x)


unbind = unstack


def split(tensor, split_size_or_sections, axis=0) -> tuple[Tensor, ...]:
    """Parts along an axis: of one size (the last may be smaller), or of the sizes in a list.

    >>> from minispore import Tensor
    >>> [t.tolist() for t in split(Tensor([1, 2, 3, 4, 5]), 2)]
    [[1, 2], [3, 4], [5]]
    """
    axis, = _axes("split", tensor, axis)
    n, sizes = tensor.shape[axis], split_size_or_sections
    if isinstance(sizes, int):
        if sizes < 1:
            raise ValueError(f"split: split_size {sizes} must be ≥ 1")
        sizes = [min(sizes, n - at) for at in range(0, n, sizes)]
    if sum(sizes) != n or any(s < 0 for s in sizes):
        raise ValueError(f"split: sections {list(sizes)} must be ≥ 0 and add up to {n}, dim {axis} of shape {tensor.shape}")
    at, parts = 0, []
    for s in sizes:
        parts.append(narrow(tensor, axis, at, s))
        at += s
    return tuple(parts)


def chunk(input, chunks, axis=0) -> tuple[Tensor, ...]:
    """At most `chunks` parts of one size (the last may be smaller)."""
    if not isinstance(chunks, int) or chunks < 1:
        raise ValueError(f"chunk: chunks {chunks!r} must be a whole number ≥ 1")
    return split(input, max(-(-input.shape[axis] // chunks), 1), axis)


def repeat_interleave(input, repeats: int, axis=None) -> Tensor:
    """Each entry along an axis `repeats` times in a row; without axis, of the flattened tensor."""
    if axis is None:
        input, axis = ravel(input), 0
    axis, = _axes("repeat_interleave", input, axis)
    if not isinstance(repeats, (int, np.integer)) or repeats < 0:
        raise ValueError(f"repeat_interleave: repeats {repeats!r} must be a whole number ≥ 0")
    lead, rest = input.shape[:axis + 1], input.shape[axis + 1:]
    wide = broadcast_to(expand_dims(input, axis + 1), (*lead, repeats, *rest))
    return reshape(wide, (*input.shape[:axis], input.shape[axis] * repeats, *rest))


def flip(input, dims) -> Tensor:
    """In the opposite order along some dims."""
    return arrange.ReverseV2(dims if isinstance(dims, int) else tuple(dims))(input)


def roll(input, shifts, dims=None) -> Tensor:
    """Entries moved on by `shifts`; those that leave at the end come in at the begin."""
    if dims is None:
        return reshape(roll(ravel(input), shifts, 0), input.shape)
    shifts, axes = (shifts,) if isinstance(shifts, int) else tuple(shifts), _axes("roll", input, dims)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} dims; give one for each")
    for shift, axis in zip(shifts, axes, strict=True):
        n = input.shape[axis]
        k = shift % n if n else 0
        if k:
            input = concat((narrow(input, axis, n - k, k), narrow(input, axis, 0, n - k)), axis)
    return input


def pad(input_x, padding, mode="constant", value=0) -> Tensor:
    """More room around: padding (before, after) of the last dim, then of the one before it, … (as PyTorch's).

    Only mode "constant". Negative numbers cut.
    """
    if mode != "constant":
        raise ValueError(f"pad: mode {mode!r}; only 'constant' is there")
    padding = (padding,) if isinstance(padding, int) else tuple(padding)
    pairs = list(zip(padding[::2], padding[1::2], strict=False))[::-1]
    if len(padding) % 2 or len(pairs) > input_x.ndim:
        raise ValueError(f"pad: padding {padding} must be pairs (before, after), at most {input_x.ndim} of them for "
                         f"shape {input_x.shape}")
    pairs = [(0, 0)] * (input_x.ndim - len(pairs)) + pairs
    cut = tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pairs, input_x.shape, strict=True))
    x, pairs = input_x[cut], [(max(a, 0), max(b, 0)) for a, b in pairs]
    whole = tuple(a + n + b for (a, b), n in zip(pairs, x.shape, strict=True))
    begin, end = tuple(a for a, _ in pairs), tuple(a + n for (a, _), n in zip(pairs, x.shape, strict=True))
    if whole == x.shape:
        return x
    out = shape.StridedSliceGrad(begin, end, (1,) * x.ndim, whole)(x)
    if value == 0:
        return out
    inside = np.zeros(whole, bool)
    inside[tuple(map(slice, begin, end))] = True
    return F.select(Tensor(inside), out, F.full_like(out, value))


def triu(input, diagonal=0) -> Tensor:
    """The upper triangle of each matrix, zeros below."""
    return arrange.Triu(diagonal)(input)


def tril(input, diagonal=0) -> Tensor:
    """The lower triangle of each matrix, zeros above."""
    return arrange.Tril(diagonal)(input)


def masked_fill(input_x, mask, value) -> Tensor:
    """`value` where the mask is True."""
    return arrange.MaskedFill()(input_x, mask, value)


# ---- picking ------------------------------------------------------------------------------------------

def one_hot(indices, depth, on_value=1, off_value=0, axis=-1) -> Tensor:
    """on_value at the index, off_value elsewhere; of on_value's dtype (a Python integer: int64)."""
    dtype = on_value.dtype if isinstance(on_value, Tensor) else mstype.to_dtype(type(on_value))
    return indexing.OneHot(axis, dtype=dtype)(indices, depth, on_value, off_value)


def gather(input_params, input_indices, axis) -> Tensor:
    """input_params[…, input_indices, …] along an axis."""
    return indexing.Gather(axis)(input_params, input_indices)


def index_select(input, axis, index) -> Tensor: return gather(input, index, axis)
def gather_elements(input, dim, index) -> Tensor: return order.GatherD(dim)(input, index)
def gather_d(x, dim, index) -> Tensor: return order.GatherD(dim)(x, index)


def argsort(input, axis=-1, descending=False) -> Tensor:
    """Indices (int32) that sort along an axis."""
    return order.ArgSort(axis, descending)(input)


def sort(input_x, axis=-1, descending=False) -> tuple[Tensor, Tensor]:
    """(values in order, their indices before) along an axis."""
    return order.Sort(axis, descending)(input_x)


def topk(input, k, dim=None, largest=True, sorted=True) -> tuple[Tensor, Tensor]:
    """(values, indices) of the k largest (or smallest) along a dim, in order; the last dim by default.

    >>> from minispore import Tensor
    >>> values, indices = topk(Tensor([3.0, 1.0, 2.0]), 2)
    >>> values.tolist(), indices.tolist()
    ([3.0, 2.0], [0, 2])
    """
    axis = normal_axis(-1 if dim is None else dim, input.ndim, order.TopK())
    if not isinstance(k, (int, np.integer)) or not 0 <= k <= input.shape[axis]:
        raise ValueError(f"topk: k={k!r} must be in 0 … {input.shape[axis]}, the size of dim {axis} of shape {input.shape}")
    index = narrow(order.ArgSort(axis, bool(largest))(input), axis, 0, int(k))
    return gather_elements(input, axis, index), index


def cumsum(x, axis, dtype=None) -> Tensor:
    """Running sums along an axis."""
    return order.CumSum()(x if dtype is None else F.cast(x, dtype), axis)
