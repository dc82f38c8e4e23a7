"""E2 · Softmax cross-entropy: its value and its gradient.

For a row of logits z and the index of the right class, the loss is -log(exp(z[label]) / Σ exp(z)). Write the value with numpy and
the gradient with ops. They take the place of those of the op that `ops.cross_entropy` and `nn.CrossEntropyLoss` are built on.

    cross_entropy(op, logits, labels) -> losses
    cross_entropy_gradient(op, logits, labels, out, dout) -> (gradient to logits, None)

op              the op; not needed here
logits          (n, classes), or (…, classes) with any number of dims in front; floats of any size, also 1000 and -1000
labels          (n,), or (…): integers from 0 to classes - 1
losses and out  one value a row: the shape of `labels`, and the dtype of `logits`
dout            what an increase of each row's loss does to the final loss: the shape of `out`

In cross_entropy, logits and labels are numpy arrays: use numpy. In cross_entropy_gradient everything is a Tensor: use ops, such
as `ops.softmax(x, -1)`, `ops.one_hot(labels, classes)` (integers, so `.astype(logits.dtype)`), `ops.expand_dims(x, -1)`. Labels
have no gradient, therefore the None.

Example: logits [[0, 0]], labels [1] gives the loss [0.6931] (log 2), and for dout [10] the gradient [[5, -5]].

Graded: the value (2 points), the gradient of each row (3), large logits (2), dims in front (1), the gradient's gradient (1), a
network trained with it (1).
"""
import numpy as np

from minispore import ops


def cross_entropy(op, logits, labels):
    raise NotImplementedError("E2: write cross_entropy(op, logits, labels), see above")


def cross_entropy_gradient(op, logits, labels, out, dout):
    raise NotImplementedError("E2: write cross_entropy_gradient(op, logits, labels, out, dout), see above")
