"""Softmax, LogSoftmax and the cross-entropy ops: the class axis must stay whole."""
from dataclasses import dataclass
from math import prod

import numpy as np

from minispore.common import dtype as mstype
from minispore.ops import functional as F
from minispore.ops.primitive import Primitive, Spec, demand_float, namespace, normal_axis
from minispore.ops.rule import letters


@dataclass(frozen=True)
class Softmax(Primitive):
    """exp(x) / Σ exp(x) along an axis, shifted by the maximum so that nothing overflows."""
    axis: int = -1

    def __post_init__(self):
        if isinstance(self.axis, tuple) and len(self.axis) == 1:
            object.__setattr__(self, "axis", self.axis[0])

    def rule(self, shape):
        names = letters(len(shape))
        names[normal_axis(self.axis, len(shape), self)] = "X"
        return f"{' '.join(names)} -> {' '.join(names)}"

    def infer(self, x):
        demand_float(self, x=x)
        normal_axis(self.axis, len(x.shape), self)
        return Spec(x.shape, x.dtype)

    def forward(self, x):
        if 0 in x.shape:
            return x
        xp = namespace(x)
        e = xp.exp(x - xp.max(x, axis=self.axis, keepdims=True))
        return e / xp.sum(e, axis=self.axis, keepdims=True)

    def cpu(self, out, x):
        np.exp(LogSoftmax(self.axis).forward(x), out=out)

    def gradient(self, x, out, dout):
        return (out * (dout - F.sum(dout * out, self.axis, True)),)

    def flops(self, x):
        return 5 * prod(x.shape)


class LogSoftmax(Softmax):
    """x - log Σ exp(x) along an axis."""

    def forward(self, x):
        if 0 in x.shape:
            return x
        xp = namespace(x)
        shifted = x - xp.max(x, axis=self.axis, keepdims=True)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=self.axis, keepdims=True))

    def cpu(self, out, x):
        np.copyto(out, self.forward(x))

    def gradient(self, x, out, dout):
        return (dout - F.exp(out) * F.sum(dout, self.axis, True),)


def _demand_labels(op, logits, labels):
    if not mstype.is_integer(labels.dtype):
        raise TypeError(f"{op.name}: labels of shape {labels.shape} are {labels.dtype}; class indices must be integers. "
                        "Use TypeCast(ms.int32) in the dataset or .astype(ms.int32)")
    if labels.shape != logits.shape[:-1]:
        raise ValueError(f"{op.name}: logits {logits.shape} need labels of shape {logits.shape[:-1]} (one class index "
                         f"for each row), got {labels.shape}")


class NegativeLogLikelihood(Primitive):
    """-logp[label] for each row: log probabilities (…, classes), integer labels (…) -> (…).

    A label outside 0 … classes-1 is a ValueError that names it.
    """
    arity = 2

    def rule(self, logp, labels):
        lead = " ".join(letters(len(labels)))
        return f"{lead} X, {lead} -> {lead}"

    def infer(self, logp, labels):
        demand_float(self, logits=logp)
        _demand_labels(self, logp, labels)
        return Spec(labels.shape, logp.dtype)

    def forward(self, logp, labels):
        xp, classes = namespace(logp), logp.shape[-1]
        outside = (labels < 0) | (labels >= classes)
        if bool(xp.any(outside)):
            bad = int(xp.max(xp.where(outside, labels, xp.zeros_like(labels))))
            bad = bad if bad else int(xp.min(labels))
            raise ValueError(f"{self.name}: label {bad} is outside 0 … {classes - 1} (logits {tuple(logp.shape)}); "
                             "check the labels, the last layer's out_channels, or ignore_index")
        hit = xp.expand_dims(labels, axis=-1) == xp.arange(classes, dtype=labels.dtype)
        return -xp.sum(xp.where(hit, logp, xp.zeros_like(logp)), axis=-1)

    def gradient(self, logp, labels, out, dout):
        hot = F.cast(F.one_hot(labels, logp.shape[-1]), logp.dtype)
        return -hot * F.expand_dims(dout, -1), None

    def flops(self, logp, labels):
        return 5 * prod(logp.shape)


class SparseSoftmaxCrossEntropyWithLogits(NegativeLogLikelihood):
    """The same of log softmax(logits): cross-entropy for each row, logits (…, classes), integer labels (…) -> (…)."""

    def forward(self, logits, labels):
        return super().forward(LogSoftmax(-1).forward(logits), labels)

    def gradient(self, logits, labels, out, dout):
        hot = F.cast(F.one_hot(labels, logits.shape[-1]), logits.dtype)
        return (Softmax(-1)(logits) - hot) * F.expand_dims(dout, -1), None


class SoftmaxCrossEntropyWithLogits(Primitive):
    """(-Σ labels · log softmax(logits), its gradient to the logits) for each row, as MindSpore's op of that name.

    logits and labels (n, classes), labels are probabilities; outputs (n,) and (n, classes).
    """
    arity = 2

    def rule(self, logits, labels):
        return "n C, n C -> n, n C"

    def infer(self, logits, labels):
        demand_float(self, logits=logits, labels=labels)
        if logits.shape != labels.shape or len(logits.shape) != 2:
            raise ValueError(f"{self.name}: logits {logits.shape} and labels {labels.shape} must both be (batch, "
                             "classes): labels are probabilities here. For class indices use "
                             "nn.SoftmaxCrossEntropyWithLogits(sparse=True)")
        return [Spec(logits.shape[:1], logits.dtype), Spec(logits.shape, logits.dtype)]

    def forward(self, logits, labels):
        xp = namespace(logits)
        logp = LogSoftmax(-1).forward(logits)
        total = xp.sum(labels, axis=-1, keepdims=True)
        return -xp.sum(labels * logp, axis=-1), xp.exp(logp) * total - labels

    def gradient(self, logits, labels, outs, douts):
        dloss, dd = douts
        column = F.expand_dims(dloss, -1)
        prob, total = Softmax(-1)(logits), F.sum(labels, -1, True)
        inner = F.sum(dd * prob, -1, True)                  # dd · d(prob · total - labels)
        return (lambda: outs[1] * column + total * prob * (dd - inner),
                lambda: inner - dd - LogSoftmax(-1)(logits) * column)

    def flops(self, logits, labels):
        return 6 * prod(logits.shape)
