# %% [markdown]
# # 01 · Ops and gradients
#
# After this chapter you can say what happens between `loss(x)` and its gradient, define an op of your own that differentiates,
# and check any gradient without trusting anybody. Forty minutes; chapter 00 comes before.

# %%
import numpy as np

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.graph.compile import trace_call
from minispore.lab import check, draw, explore, hint

# !%load_ext minispore.lab

# %% [markdown]
# ## A question
#
# Here is a function that nobody has ever differentiated. The library gives its gradient at once:

# %%
def f(x):
    return ops.sum(ops.tanh(x) * x)


x = Tensor(np.array([0.5, -1.0, 2.0]))
print("f(x)    =", f(x))
print("gradient:", ms.grad(f)(x))

# %% [markdown]
# How does it know? And is it right?
#
# A *tensor* (张量) is what you know as an array: numbers, a shape, a dtype. `f` takes one and returns another, with a single
# number in it. The *gradient* (梯度) has a number for each element of `x`: how much `f` grows if this element grows by a little.
# So let's push the first element by a little and see:

# %%
h = 1e-6
push = np.array([h, 0, 0])
up, down = f(Tensor(x.asnumpy() + push)), f(Tensor(x.asnumpy() - push))
print("by trying out:", (float(up) - float(down)) / (2 * h))
print("by ms.grad:   ", ms.grad(f)(x)[0])

# %% [markdown]
# This is a *finite difference* (有限差分). It needs two runs of `f` for each element, far too slow for a network with a million
# weights, but it knows nothing about `f`, so you can't fool it. Why `h = 1e-6`? Here is how far it is off for other steps:

# %%
steps = 10.0 ** np.arange(-14, 0)
slope = float(ms.grad(f)(x)[0])


def off(h):
    up, down = (float(f(Tensor(x.asnumpy() + sign * np.array([h, 0, 0])))) for sign in (1, -1))
    return abs((up - down) / (2 * h) - slope) + 1e-16


errors = [off(h) for h in steps]
assert min(errors) < 1e-8 < max(errors)
draw.curves({"finite difference": errors}, x=steps, xlabel="step h", ylabel="error", log=True)

# %% [markdown]
# With a large step the function bends away. With a tiny one the two values are so close that their difference is rounding and
# little else. In the middle is a good place. In float32 there is hardly such a place: check gradients in float64.
#
# ## What the library sees
#
# When `f` runs for a gradient, every op is written down. What comes out is a *graph* (计算图): ops, and the values that go from
# one to the next.

# %%
print(trace_call(f, x).show())

# %% [markdown]
# `x0` is the input. `%2` is what Tanh makes of it, and so on: three lines for three ops. (Where is the one for `*`? It is `Mul`.)
#
# Now the graph of its *gradient*. Choose what to draw:

# %%
functions = {"f": f, "its gradient": ms.grad(f), "the gradient's gradient": ms.grad(lambda x: ops.sum(ms.grad(f)(x)))}
graphs = {name: trace_call(function, x) for name, function in functions.items()}
explore(draw.graph, program=graphs)

# %% [markdown]
# The gradient is made of the same kind of ops: Mul, Sub, Add and the like. There is nothing special in it. So it can be
# differentiated once more, compiled and, from chapter 08 on, cut and spread over many ranks like any other computation.
#
# ## An op knows two things
#
# Each op knows how to compute its output, and how to send a gradient back. Here is a new one, x·|x|, complete:

# %%
class SignedSquare(ops.Primitive):
    """x · |x|: a square that keeps the sign."""

    def rule(self, x):
        return "... -> ..."                             # which dims of input and output belong together: all, one by one

    def infer(self, x):
        return x                                        # the output has the input's shape and dtype

    def forward(self, x):
        return x * abs(x)                               # numpy arrays in, a numpy array out

    def gradient(self, x, out, dout):
        return (2 * ops.abs(x) * dout,)                 # tensors, and ops: one gradient for each input


signed_square = SignedSquare()
print(signed_square(x))
print(ms.grad(lambda x: ops.sum(signed_square(x)))(x))

# %% [markdown]
# `gradient` gets the input, the output and `dout`: how much the loss grows if this *output* grows by a little. It answers how
# much the loss grows if the *input* does. That is the chain rule (链式法则) for one op, and the only calculus in the whole library.
#
# `rule` and `infer` were not needed for this. They are for later: `infer` tells shapes before anything is computed, and `rule`
# how the op may be split over ranks. An op that says these things is a *primitive* (算子).
#
# Is our gradient right? The finite differences of all elements, as above, are in the laboratory:

# %%
from minispore.lab.differences import finite_differences

by_trying, = finite_differences(lambda x: ops.sum(signed_square(Tensor(x))), x.asnumpy())
by_rule = ms.grad(lambda x: ops.sum(signed_square(x)))(x)
assert np.allclose(by_trying, by_rule.asnumpy())
draw.graph(trace_call(ms.grad(lambda x: ops.sum(signed_square(x))), x))

# %% [markdown]
# ## All of autodiff
#
# From the rules of single ops to the gradient of a whole function it is a dozen lines. Go through the graph forwards, and keep
# every value. Then go back, and let each op pass on what came to its output:

# %%
def gradient(f, x):
    graph = trace_call(f, x)
    value = {graph.inputs[0]: x}                                        # of everything in the graph

    def of(v):
        return value[v] if v in value else Tensor(v.array)              # the others are constants

    for node in graph.nodes:
        value[node.outs[0]] = node.op(*map(of, node.ins))
    back = {graph.outputs[0]: Tensor(1.0)}                              # the loss grows by 1 if the loss grows by 1
    for node in reversed(graph.nodes):
        out = node.outs[0]
        grads = node.op.gradient(*map(of, node.ins), value[out], back[out])
        for v, grad in zip(node.ins, grads, strict=True):
            grad = grad() if callable(grad) else grad                   # some ops make it only if it is wanted
            back[v] = back[v] + grad if v in back else grad             # used twice: the gradients add up
    return back[graph.inputs[0]]


print(gradient(f, x))
assert np.allclose(gradient(f, x).asnumpy(), ms.grad(f)(x).asnumpy())
assert np.allclose(gradient(lambda x: ops.sum(signed_square(ops.exp(x)) / x), x).asnumpy(),
                   ms.grad(lambda x: ops.sum(signed_square(ops.exp(x)) / x))(x).asnumpy())

# %% [markdown]
# This is *reverse-mode automatic differentiation* (反向自动微分). Look at the line with `back[v] + grad`: `x` is used twice in `f`,
# once by Tanh and once by Mul, and what comes back from both is added. Later chapters add gradients of many ranks for the same
# reason: all of them used the same weights.
#
# The library's own version (`minispore/graph/differentiate.py`) has about the same lines, and some for outputs that nobody uses.
#
# ## Exercise E1: the gradient of a matrix product
#
# Most of a network is MatMul. Its gradient is two more products, so a step costs three times what the network itself costs. Your
# function takes the place of the library's. Take your time with the shapes: they nearly tell you the answer.

# %% tags=["exercise"]
# !%%exercise e01

# %% tags=["check"]
check("e01")

# %% [markdown]
# Stuck? Hints go from gentle to nearly there:

# %%
hint("e01", 1)

# %% [markdown]
# ## A network
#
# Weights have to live somewhere. A *cell* (单元, Cell) is a function with *parameters* (参数): it makes its parts in `__init__` and
# uses them in `construct`. This one shall tell whether a point lies inside a circle:

# %%
class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Dense(2, 16), nn.Dense(16, 2)

    def construct(self, x):
        return self.out(ops.tanh(self.hidden(x)))


ms.set_seed(1)
points = np.random.default_rng(1).uniform(-1, 1, (200, 2)).astype(np.float32)
inside = Tensor(((points ** 2).sum(1) < 0.5).astype(np.int32))
points = Tensor(points)
net = Net()
print(net)
print({p.name: p.shape for p in net.trainable_params()})

# %% [markdown]
# To train it, ask for the gradient to the parameters instead of the gradient to an argument, and let an *optimizer* (优化器) take a
# step against it:

# %%
def loss_of(points, inside):
    return ops.cross_entropy(net(points), inside)


optimizer = nn.Momentum(net.trainable_params(), learning_rate=0.5, momentum=0.9)
with_gradients = ms.value_and_grad(loss_of, None, optimizer.parameters)
losses = []
for _ in range(100):
    loss, gradients = with_gradients(points, inside)
    optimizer(gradients)
    losses.append(float(loss))

assert losses[-1] < losses[0] / 2
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
right = (net(points).argmax(1) == inside).astype(ms.float32).mean()
print(f"right: {100 * float(right):.0f} %")

# %% [markdown]
# Everything you know about training is in these lines, and there is nothing parallel in them. From chapter 05 on, the same
# lines run on many ranks.
#
# ## The loss, and numbers that are too large
#
# `ops.cross_entropy` compares the network's outputs, the *logits*, with the right class: -log(exp(z_right) / Σ exp(z)). Written
# down as it is said:

# %%
def as_it_is_said(z, right):
    return -np.log(np.exp(z[right]) / np.exp(z).sum())


with np.errstate(all="ignore"):
    for z in np.array([1.0, 0.0]), np.array([1000.0, 0.0]):
        print(z, "right is 0:", as_it_is_said(z, 0), "   right is 1:", as_it_is_said(z, 1))
print("the library:", ops.cross_entropy(Tensor([[1000.0, 0.0]]), Tensor([0])), ops.cross_entropy(Tensor([[1000.0, 0.0]]), Tensor([1])))

# %% [markdown]
# exp(1000<!--= 1000 -->) is too large for any float, and with one such logit the whole training is lost: `nan` spreads to every
# weight in a single step. The true losses, 0 and 1000<!--= 1000 -->, are ordinary numbers. Get them right:
#
# ## Exercise E2: softmax cross-entropy

# %% tags=["exercise"]
# !%%exercise e02

# %% tags=["check"]
check("e02")

# %%
hint("e02", 1)

# %% [markdown]
# ## Two ways to run
#
# So far each op ran when Python came to it. MindSpore calls this PYNATIVE_MODE (动态图). In GRAPH_MODE (静态图), or with `ms.jit`,
# Python runs only once, with tensors that have a shape but no values. It leaves the graph, and the graph then runs without
# Python:

# %%
@ms.jit
def g(x):
    print("Python is here, with", x)
    return ops.sum(ops.tanh(x) * x)


print(g(x))
print(g(x))

# %% [markdown]
# The second call printed no line of Python's. That is faster. It is also what makes parallel training from a single program
# possible: whoever has the whole graph can cut it up. The price: Python can't look at values that aren't there yet (see the
# pitfalls).
#
# ## Quiz
#
# <details><summary><code>f(x) = sum(x + x)</code>. How often does something arrive at <code>x</code> on the way back?</summary>
#
# Twice, once for each input of the Add, and both are all ones. They add up to a gradient of 2 for each element.
# </details>
#
# <details><summary>Why is <code>gradient</code> written with ops, and <code>forward</code> with numpy?</summary>
#
# `forward` is where numbers are really computed, so any library of arrays will do. What `gradient` does must get into the
# graph, or it could be neither differentiated again nor compiled nor split.
# </details>
#
# <details><summary>x is (8, 3) and w is (3, 4), in <code>x @ w</code>. Which shapes has dout, and which the two gradients?</summary>
#
# dout is (8, 4), as the output. The gradients have the shapes of what they are for: (8, 3) and (3, 4).
# </details>
#
# <details><summary>A gradient and its finite difference differ by one in a thousand. Is the gradient wrong?</summary>
#
# In float64 with a step of 1e-6: yes. In float32 it may be rounding, so do it again in float64.
# </details>
#
# ## In MindSpore
#
# - `Tensor`, `Parameter`, `nn.Cell` with `construct`, `ms.grad` and `ms.value_and_grad` **are in MindSpore** the same, under
#   the same names.
# - Our class of an op with its gradient **is in MindSpore** a primitive in C++ with a backward rule (`bprop`) in a place of its
#   own. For a gradient of your own in Python, both have `bprop` in a Cell.
# - What `rule` says in one line **is in MindSpore** a C++ class for each op, its *OperatorInfo*.
# - `trace_call(f, x).show()` **is in MindSpore** the IR file that `set_context(save_graphs=True)` writes.
#
# ## Pitfalls
#
# A Python `if` on a value in a compiled function, writing into a tensor inside a gradient, and an op that has no gradient:

# %%
@ms.jit
def branch(x):
    return x if ops.sum(x) > 0 else -x


def write(x):
    y = x * 2
    y[0] = 0.0
    return ops.sum(y)


class Halved(ops.Primitive):
    def forward(self, x):
        return x / 2


for wrong in branch, ms.grad(write), ms.grad(lambda x: ops.sum(Halved()(x))):
    try:
        wrong(x)
    except (RuntimeError, NotImplementedError) as error:
        print(f"{type(error).__name__}: {error}\n")
    else:
        raise AssertionError("this was to fail")
