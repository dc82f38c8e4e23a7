# %% [markdown]
# # 05 · Data parallel
# At the end you can spread a training over several ranks with three lines, get the numbers of one machine, and name the four
# cases in which you wouldn't. About 35<!--= 5*7 --> minutes. Chapters 03 and 04 come before.

# %% tags=["setup"]
import numpy as np

import minispore as ms
import minispore.dataset as ds
from minispore import Model, Tensor, nn
from minispore.communication import communicator, get_group_size, get_rank, init
from minispore.dataset.sources import DIGITS  # the folder of handwritten digits that comes with minispore
from minispore.dataset.transforms import TypeCast
from minispore.dataset.vision import HWC2CHW, Rescale
from minispore.lab import check, draw, explore, fast, hint, ranks
from minispore.train import Callback

# !%load_ext minispore.lab

# %% [markdown]
# ## A question
# A training step looks at 64<!--= 4*16 --> pictures, finds the gradient of their mean loss, and moves the weights. You have four
# machines. Each takes 16<!--= 64//4 --> of the pictures, so it has a quarter of the work. But then each has a gradient of its
# own. **What must they tell each other so that all four make the step that one machine would have made?**
#
# ## Try it
# A model with one weight, `prediction = w * x`, and eight rows of data. Each of four ranks takes two rows.

# %%
x = np.array([1.0, 2, 3, 4, 5, 6, 7, 8])
y = 3 * x


def gradient(w, x, y):
    """Of the mean over the rows of (w x - y)²."""
    return float(np.mean(2 * (w * x - y) * x))


@ranks(4)
def job():
    init()
    mine = slice(2 * get_rank(), 2 * get_rank() + 2)
    g = gradient(1.0, x[mine], y[mine])
    total = communicator().all_reduce(np.array([g])).wait()


print("each rank's gradient:  ", job.g)
print("their sum, divided by 4:", job.total[0] / 4)
print("one machine's gradient: ", gradient(1.0, x, y))
assert np.allclose(job.total[0] / 4, gradient(1.0, x, y))

# %% [markdown]
# No rank's own gradient is right, and they differ a lot. Their mean is exactly the gradient of the whole batch. One AllReduce,
# the one of chapter 04, is all that the ranks tell each other.
#
# Each rank's rows are its *shard* (数据分片) of the batch. This way to train is called *data parallel* (数据并行): the data are
# split, the weights are there on every rank. Choose the number of ranks and see who has what of a batch of 16<!--= 2*8 --> rows
# with eight features.

# %% tags=["picture"]
explore(lambda size: draw.slices((16, 8), (size, 1), size), size=[1, 2, 4, 8]).set(size=4)

# %% [markdown]
# The picture gives each rank neighbouring rows. Which rows a rank has doesn't matter, as long as every row is on one rank and one
# only: a sum doesn't care about the order.
#
# ## Why the mean is right, and when it isn't
# The loss of a batch is a mean over its $N$ rows, and the gradient of a sum is the sum of the gradients:
#
# $$g = \frac{1}{N}\sum_{i=1}^{N} g_i .$$
#
# Rank $r$ has $n_r$ of these rows and computes the mean over them, $m_r = \frac{1}{n_r}\sum_{i \in r} g_i$. So the sum over its
# rows is $n_r m_r$, and
#
# $$g = \frac{n_0 m_0 + n_1 m_1 + \dots}{n_0 + n_1 + \dots} .$$
#
# If all ranks have equally many rows, $n_r$ can be cancelled, and what is left is the mean of the $m_r$. That condition is easily
# forgotten. Here are three ways to break it, each in a few lines.
#
# **1. Unequal shards.** Seven rows on two ranks: four and three.

# %%
@ranks(2)
def uneven():
    init()
    mine = slice(0, 4) if get_rank() == 0 else slice(4, 7)
    g, n = gradient(1.0, x[mine], y[mine]), len(x[mine])
    mean_of_means = communicator().all_reduce(np.array([g])).wait()[0] / 2
    sums, rows = communicator().all_reduce(np.array([g * n, n])).wait()


print("mean of the means:       ", uneven.mean_of_means[0])
print("sum of sums, by all rows:", uneven.sums[0] / uneven.rows[0])
print("one machine:             ", gradient(1.0, x[:7], y[:7]))
assert not np.isclose(uneven.mean_of_means[0], gradient(1.0, x[:7], y[:7]))
assert np.isclose(uneven.sums[0] / uneven.rows[0], gradient(1.0, x[:7], y[:7]))

# %% [markdown]
# The three rows of rank 1 counted as much as the four of rank 0. Send sums and the number of rows, and divide once, at the end.
#
# Datasets avoid the case: all shards get equally many rows. Where the rows don't divide, some are given out twice.

# %%
for rank in range(4):
    shard = ds.NumpySlicesDataset(np.arange(10), "row", shuffle=False, num_shards=4, shard_id=rank)
    print(f"rank {rank} of 4 reads rows", [int(row) for (row,) in shard])

# %% [markdown]
# Ten rows on four ranks make three rows each, so two of them come twice. In training that is a small error in one batch an
# epoch. `batch(…, drop_remainder=True)` leaves it out, unless the batches cut a shard without remainder. Note also that rank
# $r$ reads the rows $r$, $r+4$, $r+8$: with shards of this kind, the ranks' first batches together are the first batch of one
# machine.
#
# **2. A sum instead of a mean.** If the loss *adds* over the rows, the ranks' gradients must be added and not averaged. And the
# reverse: if it is a mean and you only add, the step is four times too long on four ranks. Which it shall be, the parallel
# context says: `gradients_mean`. Its default is `False`, in MindSpore too.

# %%
def one_step(reduction, gradients_mean):
    """The weight of a tiny network after a step on four ranks; it begins at 1."""
    init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=gradients_mean)
    net = nn.Dense(1, 1, weight_init="ones", has_bias=False, dtype=ms.float64)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss(reduction)), nn.SGD(net.trainable_params(), 0.001))
    rows = slice(get_rank(), None, get_group_size())
    step(Tensor(x[rows, None]), Tensor(y[rows, None]))
    return float(net.weight.asnumpy()[0, 0])


moved = {}
print("loss    gradients_mean   moved on one rank   on four ranks")
for reduction in ("mean", "sum"):
    for mean in (True, False):
        alone, four = (ranks(n).run(one_step, reduction, mean).values[0] - 1 for n in (1, 4))
        moved[reduction, mean] = four / alone
        print(f"{reduction:<8}{mean!s:<17}{alone:<20.4f}{four:.4f}  {'equal' if np.isclose(four, alone) else 'WRONG'}")

# %% [markdown]
# | the loss is a … over this rank's rows | to be done with the gradients | `gradients_mean` |
# |---|---|---|
# | mean (the default of most losses) | average | `True` |
# | sum | add | `False` |
#
# A wrong choice makes no error and no warning. The training only behaves as with another learning rate: with the first mistake
# four times as large, with the second a quarter.

# %%
assert np.allclose([moved["mean", True], moved["sum", False]], 1)
assert np.allclose([moved["mean", False], moved["sum", True]], [4, 1 / 4])

# %% [markdown]
# **3. Rows that know of each other.** All this holds because each row has a loss of its own. *Batch normalisation*
# (批归一化) breaks it: it subtracts the mean *of the batch* from each row. A rank sees only its shard, so it subtracts
# another mean.

# %%
@ranks(2)
def norms():
    init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel")
    rows = Tensor(np.array([[0.0], [2], [10], [12]], np.float32)[2 * get_rank(): 2 * get_rank() + 2])
    own = nn.BatchNorm1d(1).set_train()(rows).asnumpy().ravel().round(2)
    synced = nn.SyncBatchNorm(1).set_train()(rows).asnumpy().ravel().round(2)


print("rows 0, 2, 10, 12 after batch norm, two rows a rank")
print("by each shard:  ", *norms.own)
print("by the batch:   ", *norms.synced)
assert np.allclose(np.concatenate(norms.own), [-1, 1, -1, 1], atol=0.01)

# %% [markdown]
# By shard, the rows 0 and 10<!--= 2*5 --> become the same number. `SyncBatchNorm` sums the statistics over the ranks, which
# costs two more small AllReduces a layer. With 32<!--= 2**5 --> or more rows a rank people mostly do without; with two rows a
# rank it is needed.
#
# ## The same start
# There is a fourth condition, so plain that it is forgotten: before the first step, all ranks must have the same weights. Here
# two ranks begin with different ones and train on.

# %%
def two_starts(broadcast, steps=3):
    init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, parameter_broadcast=broadcast)
    net = nn.Dense(1, 1, weight_init=Tensor([[1.0 + get_rank()]], ms.float32), has_bias=False)      # not the same on all ranks
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.001))
    rows = slice(get_rank(), None, 2)
    weights = []
    for _ in range(steps):
        step(Tensor(x[rows, None], ms.float32), Tensor(y[rows, None], ms.float32))
        weights.append(float(net.weight.asnumpy()[0, 0]))
    return weights


for broadcast in (False, True):
    rank0, rank1 = ranks(2).run(two_starts, broadcast).values
    print(f"parameter_broadcast={broadcast!s:<6} rank 0's weight {np.round(rank0, 3)}  rank 1's {np.round(rank1, 3)}")
assert rank0 == rank1

# %% [markdown]
# Both get the same averaged gradient in each step, so they keep their distance for ever; and the gradients they average belong
# to different weights. No error comes up. With `parameter_broadcast=True` rank 0's weights go to all others before the first
# step. If all ranks set the same seed, they draw the same weights and nothing needs to be sent; after loading a checkpoint on
# one rank only, you need it.
#
# ## Your turn: E8
# Write the step itself, with nothing but AllReduce and Broadcast. It has to be right for equal shards, for unequal ones, and for
# a rank that has no rows at all. Stuck? `hint("e08", 1)` opens the first of five hints.

# %% tags=["exercise"]
# !%%exercise e08

# %% tags=["check"]
check("e08")

# %% [markdown]
# ## Three lines
# Now a real training. First the script for one machine: handwritten digits, a small convolutional network, `Model.train`. Nothing
# in it knows of ranks; `shards` and `shard` keep their defaults.

# %%
class Losses(Callback):
    """Keeps the loss of each step."""

    def __init__(self):
        self.values = []

    def on_train_step_end(self, run_context):
        self.values.append(float(run_context.original_args().net_outputs))


def train(shards=1, shard=0):
    """Train on digits of 8 x 8 pixels; returns (the loss of each step, the weights)."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    data = ds.MnistDataset(DIGITS, "train", num_shards=shards, shard_id=shard)
    data = data.map([Rescale(1 / 255, 0), HWC2CHW()], "image").map(TypeCast(ms.int32), "label")
    data = data.batch(64 // shards, drop_remainder=True)
    net = nn.SequentialCell(nn.Conv2d(1, 8, 3, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(72, 10))
    optimizer = nn.Momentum(net.trainable_params(), learning_rate=0.1, momentum=0.9)
    losses = Losses()
    Model(net, nn.CrossEntropyLoss(), optimizer).train(fast(6, 2), data, losses)
    return losses.values, [p.asnumpy() for p in net.trainable_params()]


alone = ranks(1).run(train)
losses, weights = alone[0].losses.values, alone.values[0][1]
print(f"{len(losses)} steps, loss {losses[0]:.3f} -> {losses[-1]:.3f}, {sum(w.size for w in weights)} weights")
assert losses[-1] < losses[0]

# %% [markdown]
# And the parallel one. Three lines make it so: join the ranks, say how gradients are put together, read a shard.

# %%
def parallel():
    init()                                                                              # 1: join the ranks
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)    # 2: average the gradients
    return train(get_group_size(), get_rank())                                          # 3: read a shard


jobs = {n: ranks(n).run(parallel) for n in (1, 2, 4)}
curves = {f"{n} rank{'s' if n > 1 else ''}": np.mean([losses for losses, _ in job.values], axis=0) for n, job in jobs.items()}
for n, job in jobs.items():
    off = max(np.abs(a - b).max() for a, b in zip(weights, job.values[0][1], strict=True))
    print(f"{n} rank(s): last loss {curves[f'{n} ranks' if n > 1 else '1 rank'][-1]:.6f}, weights differ by at most {off:.1e}")
    assert off < 1e-3

# %% [markdown]
# Each rank's loss is that of its own shard; the loss of the batch is the mean of them, which is what the curves show.

# %% tags=["picture"]
draw.curves(curves, x=np.arange(1, len(losses) + 1), xlabel="step", ylabel="loss of the whole batch")

# %% [markdown]
# There are three curves in this picture, one on top of the other. Their difference can only be seen when it is drawn alone:

# %%
base = curves["1 rank"]
draw.curves({f"{name} minus 1 rank": curve - base for name, curve in curves.items() if name != "1 rank"},
            x=np.arange(1, len(base) + 1), xlabel="step", ylabel="difference of the losses")

# %% [markdown]
# This is rounding. A float32 keeps about seven digits; the sum of 64<!--= 4*16 --> gradients is the same, but it is made in
# another order: 16<!--= 64//4 --> on each rank, then over the ranks. In float64 the difference would be some hundred million
# times smaller. It is the same training.
#
# ### What was sent?
# The record of a rank tells. The network has 802<!--= 8*3*3 + 72*10 + 10 --> weights: 72<!--= 8*3*3 --> in the convolution,
# 730<!--= 72*10 + 10 --> in the dense layer.

# %%
calls = jobs[4].records[0].collectives()
print(f"rank 0 of 4 made {len(calls)} calls in {len(losses)} steps:")
for op in dict.fromkeys(call.op for call in calls):
    of_it = [call for call in calls if call.op == op]
    print(f"  {len(of_it):>4} x {op} of {of_it[0].count} values ({of_it[0].dtype})")
assert [c.count for c in calls if c.op == "AllReduce"] == [802] * len(losses)

# %% [markdown]
# One AllReduce a step, with all gradients in it, whatever the batch size. (The one AllGather is `Model.train`: it makes sure
# that all ranks have the same number of steps, since otherwise some would wait for ever.) Why the gradients of both layers travel
# together is the next chapter's story.
#
# ## Is it faster?
# Thread ranks share one process, so they show numbers, not speed. `%%msrun` starts real processes. This script has a
# larger network; it says how many pictures it trains in a second, and which part of the time went into communication.

# %% tags=["processes"]
# !%%writefile measure.py
from time import perf_counter

import numpy as np

import minispore as ms
from minispore import Tensor, nn
from minispore.communication import get_group_size, get_rank, get_record, init

BATCH, STEPS = 256, 10

init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(1)
net = nn.SequentialCell(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(),
                        nn.Dense(64 * 4 * 4, 10))
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Momentum(net.trainable_params(), 0.01, 0.9))
rng, mine = np.random.default_rng(0), slice(get_rank(), None, get_group_size())
x = Tensor(rng.normal(size=(BATCH, 1, 8, 8)).astype(np.float32)[mine])
y = Tensor(rng.integers(0, 10, BATCH).astype(np.int32)[mine])

step(x, y)                                      # the first step compiles
before, times = get_record().seconds(), [perf_counter()]
for _ in range(STEPS):
    loss = step(x, y)
    times.append(perf_counter())
speed = BATCH / float(np.median(np.diff(times)))        # the median: a busy machine disturbs some steps
waited = (get_record().seconds() - before) / (times[-1] - times[0])
print(f"{speed:,.0f} pictures/s, {waited:.0%} of the time in communication")

# %% tags=["processes"]
# !%%msrun -n 1 --into one
import measure

speed, waited = measure.speed, measure.waited

# %% tags=["processes"]
# !%%msrun -n 2 --into two
import measure

speed, waited = measure.speed, measure.waited

# %%
print(f"two processes are {two[0].speed / one[0].speed:.2f} times as fast as one")

# %% [markdown]
# With two free cores, expect something near two, and rather below it; a machine that is busy shows anything. Three things keep
# it there:
#
# - **Communication.** AllReduce of $n$ bytes by a ring takes about $2 \frac{p-1}{p} n \beta$ seconds (chapter 04), however
#   small the shards are. More ranks mean less computing on each, and the same to send.
# - **Waiting.** A step ends when the slowest rank is done. Part of what counts as communication is waiting for it.
# - **Small pieces.** 128<!--= 256//2 --> rows don't take half of the time of 256<!--= 2*128 -->: some work is there for each
#   call.
#
# So data parallel pays when there is much computing for each byte of gradient: large shards, convolutions. Often people let the
# batch grow with the number of ranks, so that the shards stay large. That is another training then: fewer steps, and the
# learning rate has to be chosen anew.
#
# ## Quiz
# <details><summary>Four ranks, a mean loss, gradients_mean=False. What would you see?</summary>
#
# The sum of four means: a step four times too long. No error; the loss falls faster, or the training blows up.
# </details>
#
# <details><summary>You use 8 ranks instead of 4, with the same batch for all of them together. How much more does each rank
# send in a step?</summary>
#
# Hardly more. A ring sends $2\frac{p-1}{p}$ times the gradients: 1.75<!--= 2*7/8 --> times instead of 1.5<!--= 2*3/4 -->. But
# each rank computes half as long, so the share of communication grows.
# </details>
#
# <details><summary>Why do ranks send gradients and not their new weights?</summary>
#
# With SGD the mean of the new weights would be the same, also with momentum: both are linear in the gradient. Adam isn't, it
# divides by the root of a mean of squares: the mean of the ranks' updates isn't the update of the mean. Also, weights are sent
# after the step, gradients while the rest of them is still computed.
# </details>
#
# <details><summary>A rank prints its loss. Is it the loss of the batch?</summary>
#
# No, that of its shard. The loss of the batch is the mean over the ranks.
# </details>
#
# ## In MindSpore this is …
# | here | In MindSpore this is … |
# |---|---|
# | this way to train | `set_auto_parallel_context(parallel_mode="data_parallel")`, 数据并行 |
# | mean or sum | `gradients_mean`, default `False`, 梯度聚合 |
# | the same start | `parameter_broadcast=True`, 参数广播 |
# | a rank's rows | `MnistDataset(…, num_shards=…, shard_id=…)`, 数据分片 |
# | the AllReduce of the gradients | `nn.DistributedGradReducer`; `TrainOneStepCell` and `Model` put it in for you |
# | statistics of the whole batch | `nn.SyncBatchNorm`, 全局批归一化 |
#
# If you write a training loop of your own, you put the reducer in yourself: between the gradients and the optimizer.

# %%
@ranks(4)
def own_loop():
    init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    net = nn.Dense(1, 1, weight_init="ones", has_bias=False, dtype=ms.float64)
    optimizer = nn.SGD(net.trainable_params(), 0.001)
    reducer = nn.DistributedGradReducer(optimizer.parameters)
    forward = ms.value_and_grad(nn.WithLossCell(net, nn.MSELoss()), None, optimizer.parameters)
    rows = slice(get_rank(), None, 4)
    loss, gradients = forward(Tensor(x[rows, None]), Tensor(y[rows, None]))
    optimizer(reducer(gradients))
    return float(net.weight.asnumpy()[0, 0])


print("on four ranks:", np.round(own_loop.values, 6))
print("one machine:  ", round(1 - 0.001 * gradient(1.0, x, y), 6))
assert np.allclose(own_loop.values, 1 - 0.001 * gradient(1.0, x, y))

# %% [markdown]
# ## Pitfalls
# **A shard without its number.** The two belong together.

# %%
try:
    ds.MnistDataset(DIGITS, "train", num_shards=4)
except RuntimeError as error:
    print(error)

# %% [markdown]
# **A rank with another number of steps.** It would be done early and the others would wait. minispore looks before it begins.

# %%
def uneven_steps():
    init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    rows = np.ones((8 - 4 * get_rank(), 2), np.float32)              # rank 1 has half as many
    data = ds.NumpySlicesDataset((rows, rows[:, :1]), ["x", "y"]).batch(2)
    net = nn.Dense(2, 1)
    Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1)).train(1, data)


print(ranks(2, may_fail=True).run(uneven_steps).error)

# %% [markdown]
# **One rank leaves the path of the others.** `if get_rank() == 0:` around a print is fine. Around anything that communicates,
# it isn't: here rank 0 adds up one more loss than the others.

# %%
def one_too_many():
    init()
    loss = np.array([1.0])
    communicator().all_reduce(loss).wait()
    if get_rank() == 0:
        communicator().all_reduce(loss).wait()


print(ranks(2, may_fail=True).run(one_too_many).error)

# %% [markdown]
# **All ranks read the same rows.** Without `num_shards` every rank trains on the whole dataset: four times the work for the same
# result as one machine. Nothing complains; look at the labels of the first batch on two ranks when you are in doubt.
#
# Next: why all gradients travelled in one message, and when they shouldn't.
