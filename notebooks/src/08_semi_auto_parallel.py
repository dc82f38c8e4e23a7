# %% [markdown]
# # 08 · Semi-auto parallel
#
# At the end you can split a network's matrices over *ranks* (进程号, rank) with one line each, tell from an equation where an
# AllReduce must appear, and choose a split by the bytes it sends and the memory it saves. About 40 minutes. Before: chapter 04
# (what an AllReduce is) and 05 (data parallel).

# %%
import numpy as np

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.communication import communicator, get_rank, init
from minispore.lab import check, draw, explore, hint, ranks

# !%load_ext minispore.lab

# %% [markdown]
# ## A matrix that is too big
#
# In data parallel each rank holds all weights. Suppose one matrix doesn't fit on a device. Then it must be cut, and a matrix
# can be cut in two ways. Try both on paper-sized numbers, without any ranks: two rows `x`, one matrix `w`.

# %%
x = np.arange(8.0).reshape(2, 4)
w = np.arange(24.0).reshape(4, 6) - 12

by_columns = [x @ piece for piece in np.split(w, 2, axis=1)]
by_rows = [xs @ ws for xs, ws in zip(np.split(x, 2, axis=1), np.split(w, 2, axis=0), strict=True)]

print("the product         ", (x @ w)[0])
print("by columns, piece 0 ", by_columns[0][0], " piece 1", by_columns[1][0])
print("by rows, piece 0    ", by_rows[0][0])
print("by rows, piece 1    ", by_rows[1][0])
assert np.array_equal(np.concatenate(by_columns, axis=1), x @ w)
assert np.array_equal(by_rows[0] + by_rows[1], x @ w)

# %% [markdown]
# Both are right, and they are different:
#
# - **By columns** (列切分), each product is a piece of the result. Put side by side, they are the result.
# - **By rows** (行切分), `x` has to be cut too: its columns meet the rows of `w`. Now each product has the shape of the whole
#   result, but only half of each sum is in it. It is a *partial sum* (部分和). Added up, they are the result.
#
# Two ranks do the same. Cutting by columns, they needn't talk. Cutting by rows, they must add: that is an AllReduce.

# %%
@ranks(2)
def job():
    init()
    me = get_rank()
    piece = x @ np.split(w, 2, axis=1)[me]                                  # by columns: nothing to be sent
    partial = np.split(x, 2, axis=1)[me] @ np.split(w, 2, axis=0)[me]       # by rows
    y = communicator().all_reduce(partial).wait()


print("partial on rank 0", job[0].partial[0])
print("partial on rank 1", job[1].partial[0])
print("after AllReduce  ", job[0].y[0])
print([event.op for event in job.records[0].collectives()])
assert np.array_equal(job[0].y, x @ w) and np.array_equal(job[1].y, x @ w)

# %% [markdown]
# Here are the two cuts of `w` on four ranks. Each colour and number is one rank's piece.

# %%
explore(lambda cut: draw.slices((4, 8), cut, 4), cut={"by columns": (1, 4), "by rows": (4, 1), "by both": (2, 2)})

# %% [markdown]
# ## Three letters say it all
#
# Write the product as an equation, with a letter for each dim: `mk,kn->mn`. `x` has the dims m and k, `w` has k and n, the
# result has m and n. Each letter can be split:
#
# | split letter | what is cut | what a rank gets | left to do |
# |---|---|---|---|
# | m | rows of `x` | some rows of the result | nothing |
# | n | columns of `w` | some columns of the result | nothing |
# | k | columns of `x` and rows of `w` | the whole shape, a part of each sum | add over the ranks |
#
# m and n are *free*: the result has them, so splitting them splits the result. k is *contracted*: the result doesn't have it,
# it has been summed over. Split a contracted letter, and what is left is a partial sum. That is the whole theory, and it holds
# for any equation: attention's `bqh,bkh->bqk`, a mean `mn->m`, an outer product `m,n->mn`.
#
# ## Exercise E12 · From the equation to the split
#
# The library holds one equation for each op, and works out the rest. You write that part now.

# %% tags=["exercise"]
# !%%exercise e12

# %% tags=["check"]
check("e12")

# %% [markdown]
# Stuck? `hint("e12", 1)` shows the first hint.
#
# ## Say it to the library
#
# In *semi-auto parallel* (半自动并行) you write the network for one device, and tell an op how its inputs are split. This is a
# *strategy* (切分策略): for each input one tuple, with the number of pieces of each dim. By rows, on two ranks:

# %%
x = ms.Parameter(Tensor(np.ones((16, 8), np.float32)), name="x")
w = ms.Parameter(Tensor(np.ones((8, 32), np.float32)), name="w")

product = ops.MatMul().shard(((1, 2), (2, 1)))
program = ms.compile(lambda: product(x, w), device_num=2)
print(program.show("complete"))

# %% [markdown]
# `ms.compile(…, device_num=2)` makes the program that one of two ranks would run. No rank is started; you look before you run.
#
# The compiler gave each tensor a *layout* (张量排布): where its pieces lie. `x: (-, a)` has two dims: the first isn't split,
# the second is split over something called `a`. And there is the partial sum: `sum over a`. You asked for no AllReduce. The
# next step of the compiler, the *partition*, puts it where a partial sum has to become whole:

# %%
print(program.show("partition"))

# %% [markdown]
# ### What a is
#
# It is not a letter of the equation. It names a direction in a grid of devices, the *mesh* (设备矩阵, device matrix). Two ranks
# are a line, four a square of two by two, eight a cube of two by two by two. A rank has a coordinate on each *axis* a, b, c:

# %%
from minispore.parallel.mesh import Mesh

for rank in range(8):
    print("rank", rank, dict(zip("abc", Mesh(8).coordinates(rank), strict=True)))

# %% [markdown]
# Why not a line of eight? One tensor may be split in two, another in four, and both must meet on the same ranks. With small
# axes the split in two takes one axis, the split in four takes two. So `(a, bc) sum over d` reads:
#
# - each dim lists the axes that split it; `-` means the dim is not split;
# - `sum over d`: ranks that differ in their d hold parts of one sum;
# - an axis that isn't named: the ranks along it hold the same piece.
#
# This is all that you need of meshes here. Choose a strategy and see who holds what:

# %%
explore(lambda split: draw.slices((8, 8), split, 8), split=[(1, 8), (8, 1), (2, 4), (4, 2), (1, 2), (2, 1), (1, 1)])

# %% [markdown]
# ## Two matrices in a row
#
# One product after the other: a network with a hidden layer. Four ranks, and two ways to cut each of the two weights. Which
# pair would you choose?

# %%
class MLP(nn.Cell):
    """relu(x @ w1) @ w2, with a strategy for each product."""

    def __init__(self, up=None, down=None, d=8, h=32):
        super().__init__()
        rng = np.random.default_rng(8)
        self.w1 = ms.Parameter(Tensor(rng.normal(size=(d, h)).astype(np.float32) / 4), name="w1")
        self.w2 = ms.Parameter(Tensor(rng.normal(size=(h, d)).astype(np.float32) / 4), name="w2")
        self.up, self.down = ops.MatMul(), ops.MatMul()
        if up:
            self.up.shard(up)
            self.down.shard(down)

    def construct(self, x):
        return self.down(ops.relu(self.up(x, self.w1)), self.w2)


inputs = Tensor(np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32))
COLUMNS, ROWS = ((1, 1), (1, 4)), ((1, 4), (4, 1))

for name, up, down in (("rows, rows", ROWS, ROWS), ("rows, columns", ROWS, COLUMNS), ("columns, columns", COLUMNS, COLUMNS),
                       ("columns, rows", COLUMNS, ROWS)):
    program = ms.compile(MLP(up, down), inputs, device_num=4)
    print(f"{name:17} {program.sent_bytes:5} bytes sent  {dict(program.collectives)}")

# %% [markdown]
# Columns, then rows: one AllReduce and nothing else. Read the layouts to see why. The first product splits n, the hidden units.
# relu works on each value alone and doesn't mind. The second product contracts over the hidden units; splitting by rows, it
# takes them just as they lie. What one product leaves is what the next one wants.
#
# The other pairs don't fit. Begin with rows, and relu has to wait for the sum, since relu of a sum is not the sum of the relus.
# Columns twice, and the second product needs all hidden units, which have to be gathered. Bringing a tensor from one layout
# into another is called *redistribution* (张量重排布), and it costs messages, too.
#
# The bytes are those of chapter 04: the result has 512 bytes<!--= 16 * 8 * 4 -->, and in a ring AllReduce of p ranks each sends
# 2(p-1)/p of it, which makes 768<!--= 2 * (4 - 1) * 16 * 8 * 4 // 4 --> for four.
#
# Look at the program as it goes through the compiler's passes. Collectives are marked.

# %%
program = ms.compile(MLP(COLUMNS, ROWS), inputs, device_num=4)
explore(lambda after: draw.graph(program, after=after), after=["trace", "complete", "partition", "local"])

# %% [markdown]
# - *trace*: what you wrote, for one device.
# - *complete*: every value has a layout. relu had no strategy; it took what fits to its neighbours.
# - *partition*: the collectives are in.
# - *local*: the program of rank 0. Its weights are a quarter of the whole, and it is an ordinary network of smaller shapes.
#
# ## And backward?
#
# Each product has two gradients, and they are products again, with equations of their own. Take `mk,kn->mn`: the gradient of
# `x` is `mn,kn->mk`, that of `w` is `mk,mn->kn`. Each of the three letters is missing in exactly one of the three results:
#
# | | equation | contracted |
# |---|---|---|
# | result | `mk,kn->mn` | k |
# | gradient of `w` | `mk,mn->kn` | m |
# | gradient of `x` | `mn,kn->mk` | n |
#
# So whichever letter you split, **one of the three is a partial sum**. Split m, n, k in turn and see which:

# %%
for letter, strategy in (("m", ((4, 1), (1, 1))), ("n", ((1, 1), (1, 4))), ("k", ((1, 4), (4, 1)))):
    product = ops.MatMul().shard(strategy)
    gradients = ms.value_and_grad(lambda: ops.sum(ops.square(product(x, w))), None, [x, w])
    steps = ms.compile(gradients, device_num=4).show("partition").splitlines()
    print(f"{letter} is split: {strategy}")
    for what, step in zip(("result", "gradient of x", "gradient of w"), [s for s in steps if "MatMul" in s], strict=True):
        print(f"    {what:14}", step.split(" = ")[0])

# %% [markdown]
# Split m, the batch, and the gradient of the weights is a partial sum. You know this one: it is the gradient AllReduce of data
# parallel. It is no special case; it is a contracted letter that is split.
#
# In the MLP the hidden units are n of the first product and k of the second. So forward the second result is partial, backward
# the gradient of `x` is, and the gradients of the weights are never sent: each rank has just the pieces that it needs. A whole
# network is many such blocks, and the gradient of `x` goes on to the block before.

# %%
net = MLP(COLUMNS, ROWS)
both_ways = ms.value_and_grad(lambda x: ops.mean(ops.square(net(x))), 0, net.trainable_params())
program = ms.compile(both_ways, inputs, device_num=4)
print(program)
draw.graph(program, after="partition")

# %% [markdown]
# One AllReduce each way, whatever the number of ranks. Blocks like this one are how the large language models' layers are
# spread over the cards of one machine: the MLP as here, attention with its heads in the place of the hidden units. It is called
# *tensor parallel* (张量并行), or *model parallel* (模型并行) in MindSpore's texts.
#
# ## Exercise E13 · One AllReduce each way
#
# First with strategies, then by hand, so that you know what the compiler does for you.

# %% tags=["exercise"]
# !%%exercise e13

# %% tags=["check"]
check("e13")

# %% [markdown]
# ## Batch and model, on eight ranks
#
# Splits combine: split the batch over some axes and the hidden units over the others. Here is a whole training step with
# momentum, for the four ways to share out eight ranks.

# %%
D, H, BATCH = 64, 256, 32


def step_of(net):
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.1, momentum=0.9))


def mlp(batch, model, d=D, h=H):
    return MLP(((batch, 1), (1, model)), ((batch, model), (model, 1)), d, h)


big = Tensor(np.random.default_rng(1).normal(size=(BATCH, D)).astype(np.float32))
programs = {}
print("batch × model   weights and momentum     working memory     sent in a step")
for batch, model in ((8, 1), (4, 2), (2, 4), (1, 8)):
    program = ms.compile(step_of(mlp(batch, model)), big, big, device_num=8)
    programs[batch, model] = program
    memory = program.memory
    print(f"    {batch} × {model} {memory['parameters']:20,} B {memory['intermediate']:16,} B {program.sent_bytes:16,} B")

# %% [markdown]
# The weights and their momentum need 262,144 bytes<!--= 2 * 2 * 64 * 256 * 4 --> in all (and eight bytes for the learning rate
# and the step). Shared by p ranks, each holds 1/p. Here the bytes fall as well. Is it always best to share the matrices among
# all eight? The AllReduce of the results grows with the batch, that of the gradients doesn't:

# %%
shares = [1, 2, 4, 8]
sent = {}
for rows in (32, 256, 1024):
    batch = Tensor(np.ones((rows, D), np.float32))
    sent[f"batch of {rows}"] = [ms.compile(step_of(mlp(8 // model, model)), batch, batch, device_num=8).sent_bytes
                                for model in shares]
draw.curves(sent, x=shares, xlabel="ranks that share a matrix", ylabel="bytes a rank sends in a step", log=True)

# %% [markdown]
# For the larger batches the best place is in between, for the smallest at the end: it depends on shapes. (In auto parallel the
# library searches for it.)
#
# Which ranks talk to each other? Two by four: the batch over axis a, the hidden units over b and c.

# %%
for node in programs[2, 4].communications:
    print(node.op.name, "on ranks", node.op.ranks, "of shapes", [v.shape for v in node.outs])
draw.graph(programs[2, 4], after="partition")

# %% [markdown]
# Rank 0 sums results with ranks 1, 2 and 3, its neighbours. (There is no AllReduce backward: this block is the first, nobody
# asks for the gradient of its input.) It sums gradients with rank 4, and the loss goes along in the same message. In a deep
# network the first kind comes twice in each block and everybody waits for it; the second kind comes once a step. So the model
# is split over the cards of one machine, which have the fast links, and the batch over the machines.
#
# ## The same numbers, however it runs
#
# On one device, then all eight ranks' programs step by step in one thread (*lock-step*), then on eight thread ranks:

# %%
ms.set_context(mode=ms.GRAPH_MODE)
alone = float(step_of(mlp(1, 1))(big, big))
together = float(programs[2, 4].lockstep(big, big).run()[0])


@ranks(8)
def job():
    init()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
    net = mlp(2, 4)
    step = step_of(net)
    loss = float(step(big, big))
    shape = net.w1.shape


print("one device ", alone)
print("lock-step  ", together)
print("threads    ", set(job.loss), "each with w1 of shape", set(job.shape))
assert np.allclose([together, *job.loss], alone, rtol=1e-5)

# %% [markdown]
# Two lines are for the ranks: `init()`, and `parallel_mode="semi_auto_parallel"`. Now four real processes, two by two:

# %%
# !%%msrun -n 4 --timeout 60 --into processes
import numpy as np

import minispore as ms
from minispore import Parameter, Tensor, nn, ops
from minispore.communication import get_rank, init


class MLP(nn.Cell):
    def __init__(self, batch, model):
        super().__init__()
        rng = np.random.default_rng(8)
        self.w1 = Parameter(Tensor(rng.normal(size=(64, 256)).astype(np.float32) / 4), name="w1")
        self.w2 = Parameter(Tensor(rng.normal(size=(256, 64)).astype(np.float32) / 4), name="w2")
        self.up = ops.MatMul().shard(((batch, 1), (1, model)))
        self.down = ops.MatMul().shard(((batch, model), (model, 1)))

    def construct(self, x):
        return self.down(ops.relu(self.up(x, self.w1)), self.w2)


init()
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel")
net = MLP(batch=2, model=2)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.1, momentum=0.9))
x = Tensor(np.random.default_rng(1).normal(size=(32, 64)).astype(np.float32))
losses = [float(step(x, x)) for _ in range(3)]
print("rank", get_rank(), "has w1 of shape", net.w1.shape, "and the losses", losses)

# %% [markdown]
# Here is the last step. In the first one the program is made and kernels are loaded, which would hide the rest.

# %%
assert np.allclose([losses[0] for losses in processes.losses], alone, rtol=1e-5)

last = [record.collectives()[-2:] for record in processes.records]
zero = min(event.begin for record in processes.records for event in record.events)
begin, end = min(first.begin for first, _ in last), max(second.end for _, second in last)
draw.timeline(processes.records, window=((begin - zero) * 1e6, (end - zero) * 1e6))

# %% [markdown]
# Read a row from left to right: first the forward AllReduce, within each pair that shares a matrix (ranks 0 and 1, ranks 2 and
# 3); then that of the gradients, between the pairs (0 and 2, 1 and 3).
#
# ## In MindSpore this is …
#
# - A strategy: **in MindSpore this is** the same call, `ops.MatMul().shard(((2, 1), (1, 4)))`.
# - Semi-auto parallel: **in MindSpore this is** `set_auto_parallel_context(parallel_mode="semi_auto_parallel")`, or, in newer
#   versions, `AutoParallel(net, parallel_mode="semi_auto")` around the training step.
# - A layout such as `(a, bc)`: **in MindSpore this is** a device matrix with a tensor map. You can also write it yourself, with
#   names for the axes: `Layout((2, 4), ("dp", "mp"))("dp", "mp")` in the place of a tuple of counts.
# - An op's equation: **in MindSpore this is** a class for each op (`MatMulInfo` and its like), which checks the strategy and
#   works out the layouts.
# - The AllReduce of a partial sum: **in MindSpore this is** an AllReduce that the parallel pass puts behind the op.
# - Redistribution: **in MindSpore this is** tensor redistribution, made of the same collectives.
#
# ## Pitfalls
#
# A strategy that can't be is refused when the program is made, with the op, its line, the reason and the nearest one that is
# legal:

# %%
for wrong in (((1, 4), (2, 1)), ((1, 3), (3, 1)), ((4, 4), (4, 1)), ((1, 1, 4), (4, 1)), ((1, 4),)):
    try:
        ms.compile(MLP(wrong, ROWS), inputs, device_num=4)
    except ValueError as error:
        print(wrong, "\n   ", error, "\n")

# %% [markdown]
# - **nn.Dense keeps its weight as (out, in).** Its equation is `mk,nk->mn`: `((1, 1), (4, 1))` splits the outputs, what you
#   know as "by columns", and `((1, 4), (1, 4))` the inputs.
# - **A bias after a split by rows** must be added once, not on every rank. In semi-auto parallel the compiler reduces first.
#   Written by hand, add it after the AllReduce.
# - **Fewer pieces than ranks is legal**: `((1, 2), (2, 1))` on four ranks computes everything twice. The shapes printed by
#   `ms.compile` show it.
# - **Numbers may differ in the last digit**: a sum of parts is added up in another order. Compare with a tolerance, as above.
#
# ## Quiz
#
# 1. You split the columns of `x` and the rows of `w` over eight ranks. What shape has each rank's product, and what is missing?
#
# <details><summary>Answer</summary>The shape of the whole result. In each place there is an eighth of the sum; an AllReduce
# adds the rest.</details>
#
# 2. Softmax over the hidden units between the two products, instead of relu. What happens to the AllReduces?
#
# <details><summary>Answer</summary>Softmax needs all hidden units of a row; its equation is <code>mC->mC</code>. So an
# AllGather comes before it, and the AllReduce after the second product stays. Try it: put <code>ops.softmax</code> in the place
# of <code>ops.relu</code>, and print the partition.</details>
#
# 3. Where is the gradient AllReduce of data parallel in the table of the three equations?
#
# <details><summary>Answer</summary>Second row: the gradient of <code>w</code> contracts m, the batch. Splitting the batch makes
# it a partial sum.</details>
#
# 4. With p ranks of tensor parallel, does a rank send more or less in an AllReduce as p grows?
#
# <details><summary>Answer</summary>2(p-1)/p times the bytes of the result: once its size with two ranks, never twice. So a
# little more. But the ring has more steps with smaller messages, so latency grows (chapter 04).</details>
