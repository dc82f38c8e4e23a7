"""Rejected by test_large_logits: a probability rounded to 0 has the logarithm minus infinity."""
import numpy as np

from minispore import ops


def cross_entropy(op, logits, labels):
    exps = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities = exps / exps.sum(axis=-1, keepdims=True)
    return -np.log(np.take_along_axis(probabilities, labels[..., np.newaxis], axis=-1)[..., 0])


def cross_entropy_gradient(op, logits, labels, out, dout):
    right = ops.one_hot(labels, logits.shape[-1]).astype(logits.dtype)
    return (ops.softmax(logits, -1) - right) * ops.expand_dims(dout, -1), None
