"""Rejected by test_large_logits: exp(1000) is infinite, and the loss with it."""
import numpy as np

from minispore import ops


def cross_entropy(op, logits, labels):
    chosen = np.take_along_axis(logits, labels[..., np.newaxis], axis=-1)[..., 0]
    return np.log(np.exp(logits).sum(axis=-1)) - chosen


def cross_entropy_gradient(op, logits, labels, out, dout):
    right = ops.one_hot(labels, logits.shape[-1]).astype(logits.dtype)
    return (ops.softmax(logits, -1) - right) * ops.expand_dims(dout, -1), None
