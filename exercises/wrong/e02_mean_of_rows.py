"""Rejected by test_value: gives the mean over the rows instead of each row's loss."""
import numpy as np

from minispore import ops


def cross_entropy(op, logits, labels):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, labels[..., np.newaxis], axis=-1)[..., 0]
    return (np.log(np.exp(shifted).sum(axis=-1)) - chosen).mean()


def cross_entropy_gradient(op, logits, labels, out, dout):
    right = ops.one_hot(labels, logits.shape[-1]).astype(logits.dtype)
    return (ops.softmax(logits, -1) - right) * ops.expand_dims(dout, -1), None
