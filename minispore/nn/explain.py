"""Why a Dense layer got another number of features than it was made for.

The usual reason is a convolution upstream whose padding isn't what the author had in mind. The graph knows the way x
came, so the message can say which shape was flattened, and what the other pad_mode would have given.
"""
from dataclasses import replace
from math import prod

from minispore.ops.conv import Conv2D
from minispore.ops.primitive import Spec
from minispore.ops.shape import Reshape


def explain_features(x, wanted: int) -> str:
    """What was found, and what to do, for a layer that takes (…, wanted)."""
    found = x.shape[-1] if x.shape else 0
    text = f"the input has shape {x.shape}, so {found} features, {wanted} are needed"
    path = _path(x)
    flattened = next((n.ins[0].shape for n in reversed(path) if isinstance(n.op, Reshape) and len(n.ins[0].shape) > 2), None)
    if flattened and prod(flattened[1:]) == found:
        text += f". They come from flattening {flattened}: {_product(flattened[1:])} = {found}"
    for now, other in (("same", "valid"), ("valid", "same")):
        shape = _replayed(path, now, other)
        if shape and prod(shape[1:]) == wanted:
            default = " (the default)" if now == "same" else ""
            return (f"{text}. {wanted} = {_product(shape[1:])} is what pad_mode={other!r} would give; the Conv2d upstream "
                    f"has pad_mode={now!r}{default}. Give it pad_mode={other!r}, or this layer in_channels={found}")
    if not path and len(x.shape) == 2:
        text += ". If they were flattened from a Conv2d's output: its pad_mode is 'same' by default, which keeps height " \
                "and width; pad_mode='valid' makes them smaller"
    return f"{text}. Set in_channels={found}, or change the layers before"


def _path(x) -> list:
    """The nodes from the input to x, along first inputs."""
    nodes, value = [], getattr(x, "_value", None)
    while value is not None and value.node is not None:
        nodes.insert(0, value.node)
        value = value.node.ins[0] if value.node.ins else None
    return nodes


def _replayed(path, now: str, other: str):
    """The shape that is flattened in the end if Conv2ds padded otherwise; None if there is no such Conv2d."""
    if not any(isinstance(n.op, Conv2D) and n.op.pad_mode == now for n in path):
        return None
    spec = None
    for node in path:
        first = spec or Spec(node.ins[0].shape, node.ins[0].dtype)
        if isinstance(node.op, Reshape) and len(first.shape) > 2:
            return first.shape
        op = node.op
        if isinstance(op, Conv2D) and op.pad_mode == now:
            op = replace(op, pad_mode=other, pad=0)
        try:
            spec = op.infer(first, *node.ins[1:])
        except (TypeError, ValueError):
            return None
    return spec.shape if isinstance(spec, Spec) else None


def _product(dims) -> str:
    return "·".join(map(str, dims))
