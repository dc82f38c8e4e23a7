# %% [markdown]
# # 06 · Buckets and overlap
# At the end you can decide how gradients travel: how many at a time, when, in which order, and you can read from a graph and from
# a record whether it is so. About 35<!--= 5*7 --> minutes. Chapter 05 comes before.

# %% tags=["setup"]
import re
from time import perf_counter

import numpy as np

import minispore as ms
from minispore import Tensor, nn
from minispore.communication import communicator, get_group_size, get_rank, get_record, init
from minispore.lab import check, cost, draw, explore, fast, hint, ranks

# !%load_ext minispore.lab

# %% [markdown]
# ## A question
# A network has a gradient for each of its parameters: a small one has ten, a large one has hundreds. Data parallel must sum all
# of them over the ranks. **One AllReduce for each? One for all together? Something between?** The bytes are the same.
#
# ## Try it
# Sixty-four gradients of 256<!--= 2**8 --> values, on four ranks: first each for itself, then all as one array.

# %%
COUNT, VALUES = 64, 256


def gradients():
    return [np.full(VALUES, i + get_rank(), np.float32) for i in range(COUNT)]


@ranks(4)
def many():
    init()
    begin = perf_counter()
    sums = [communicator().all_reduce(g).wait() for g in gradients()]
    ms_taken = 1000 * (perf_counter() - begin)


@ranks(4)
def one():
    init()
    begin = perf_counter()
    sums = np.split(communicator().all_reduce(np.concatenate(gradients())).wait(), COUNT)
    ms_taken = 1000 * (perf_counter() - begin)


for name, job in (("64 small", many), ("1 large", one)):
    messages = job.records[0].messages()
    sent = sum(m.bytes for m in messages)
    print(f"{name:<9} {len(messages):>4} messages from rank 0, {sent:,} bytes, {max(job.ms_taken):.1f} ms")
assert all((a == b).all() for a, b in zip(many.sums[3], one.sums[3], strict=True))
assert len(many.records[0].messages()) == 64 * 6 and len(one.records[0].messages()) == 6

# %% [markdown]
# The sums agree and so do the bytes, 98,304<!--= 64*256*4 * 6//4 -->. But there are 384<!--= 64*6 --> messages against six, and
# that is where the time goes. An array in which several gradients travel together is called a *bucket* (梯度桶); to put
# them there is *fusion* (通信融合).
#
# The same again with twelve gradients on two ranks, as a timeline: a bar is a call, an arrow is a message.

# %% tags=["picture"]
def twelve(at_once):
    init()
    pieces = [np.full(2000, i + get_rank(), np.float32) for i in range(12)]
    communicator().barrier().wait()
    get_record().clear()
    for i in range(0, 12, at_once):
        communicator().all_reduce(np.concatenate(pieces[i:i + at_once])).wait()


timelines = {n: ranks(2).run(twelve, n).records for n in (1, 4, 12)}
events = [event for record in timelines[1] for event in record.events]
longest = 1e6 * (max(e.end for e in events) - min(e.begin for e in events))         # µs: one scale for all three pictures
explore(lambda in_a_bucket: draw.timeline(timelines[in_a_bucket], window=(0, longest)), in_a_bucket=[1, 4, 12])

# %% [markdown]
# ## Why few large messages are faster
# Chapter 04 had two numbers for this: a message takes $\alpha$ seconds to begin, and $\beta$ seconds for each byte. With $k$
# buckets for $n$ bytes in all, a ring of $p$ ranks takes
#
# $$k \cdot 2(p-1)\,\alpha \;+\; 2\,\frac{p-1}{p}\,n\,\beta .$$
#
# The second term doesn't know $k$: the bytes are what they are. The first grows with every bucket. Now on two
# real processes. They could use the memory they share; the setting makes them send messages, as two machines would.

# %% tags=["processes"]
# !%%msrun -n 2 --into measured --env MINISPORE_SHARED_MEMORY=0
from time import perf_counter

import numpy as np

from minispore.communication import communicator, init
from minispore.lab import fast

init()
comm = communicator()
TURNS = fast(15, 5)


def seconds(values, buckets):
    """The shortest time of `buckets` AllReduces that share so many values, one after the other: what else the machine did
    made the others longer."""
    pieces, times = np.array_split(np.ones(values, np.float32), buckets), []
    for _ in range(TURNS):
        comm.barrier().wait()
        begin = perf_counter()
        for piece in pieces:
            comm.all_reduce(piece).wait()
        times.append(perf_counter() - begin)
    return min(times)


VALUES = 2 ** 18
sizes = [2 ** k for k in range(12, 23, 2)]                                      # bytes of one AllReduce
times = [seconds(size // 4, 1) for size in sizes]
counts = [2 ** k for k in range(9)]
by_count = [seconds(VALUES, count) for count in counts]
print("one bucket:", f"{by_count[0] * 1e3:.2f} ms,", counts[-1], "buckets:", f"{by_count[-1] * 1e3:.2f} ms")

# %% [markdown]
# `cost.fit` finds two numbers in the times of single AllReduces: seconds a call, which is $2(p-1)\alpha$, and seconds a byte.
# From these two the formula predicts the times of a megabyte in 1 … 256<!--= 2**8 --> buckets, which were measured as well.

# %%
job = measured[0]
alpha, beta = cost.fit(job.sizes, job.times)                # of a whole call on two ranks
predicted = [count * alpha + 4 * 2 ** 18 * beta for count in job.counts]
print(f"{alpha * 1e6:.0f} µs a call, {beta * 1e9:.2f} ns a byte")
worth = alpha / beta / 1024 if beta else np.inf             # 0: this machine was too busy to tell
print(f"so the beginning of a call is worth {worth:.0f} KB of gradients")
draw.curves({"measured": np.array(job.by_count) * 1e3, "predicted by α and β": np.array(predicted) * 1e3}, x=job.counts,
            xlabel="buckets for the same megabyte", ylabel="ms", log=True)

# %% [markdown]
# This size is what you should remember of your network: a bucket of so many bytes spends half of its time on
# beginning. Much larger buckets gain little more.
#
# ## Why not one bucket, then?
# Because a bucket can go only when its last gradient is there. Gradients are made one after the other, the **last layer's
# first**: the backward pass begins at the loss. With one bucket the network waits until everything is computed, and then
# everything waits for the network. With several, the first is on its way while the rest is still computed. This is *overlap*
# (计算通信重叠).
#
# A model on one page. The backward pass makes 40<!--= 8*5 --> gradients of 1 MB, one a millisecond. An AllReduce takes half a
# millisecond to begin and 0.8<!--= 4/5 --> ms for each MB. A bucket goes when it is full and the one before it is done.

# %%
LAYERS, ALPHA, BETA = 40, 0.5, 0.8             # gradients of 1 MB, one a ms; ms a call; ms a MB


def buckets_of(size):
    """(made at, begins, ends), in ms, for each bucket of so many MB."""
    plan, free = [], 0.0
    for first in range(0, LAYERS, size):
        last = min(first + size, LAYERS)
        begins = max(float(last), free)
        free = begins + ALPHA + BETA * (last - first)
        plan.append((last, begins, free))
    return plan


def progress(bucket):
    """MB of gradients that have been made, and that have been summed, over time."""
    now = np.linspace(0, 75, 301)
    plan = buckets_of(bucket)
    done = [sum(min(bucket, LAYERS - i * bucket) for i, (_, _, end) in enumerate(plan) if end <= t) for t in now]
    return draw.curves({"made by the backward pass": np.clip(now, 0, LAYERS), f"summed, in buckets of {bucket} MB": done}, x=now,
                       xlabel="ms since the backward pass began", ylabel="MB of gradients")

# %% tags=["picture"]
explore(progress, bucket=[1, 2, 4, 8, 20, 40]).set(bucket=4)

# %% [markdown]
# The distance between the curves at the top is the time for which all ranks only wait. Buckets of 1 MB: the network is busy
# from the start, but it spends so much time on beginning that it falls behind; it ends at 53<!--= 1 + 40*(0.5+0.8) --> ms. One
# bucket of 40<!--= 8*5 --> MB: nothing is hidden, 72.5<!--= 40 + 0.5 + 0.8*40 --> ms. In between there is a best size:

# %%
def ends(size, alpha):
    free = 0.0
    for first in range(0, LAYERS, size):
        last = min(first + size, LAYERS)
        free = max(float(last), free) + alpha + BETA * (last - first)
    return free


sizes = np.arange(1, 41)
best = {alpha: int(sizes[np.argmin([ends(s, alpha) for s in sizes])]) for alpha in (0.1, 0.5, 2.0)}
print("best bucket size in MB for each alpha in ms:", best)
assert best[0.1] < best[0.5] < best[2.0]
assert all(ends(2 * size, alpha) < 1.15 * ends(size, alpha) for alpha, size in best.items())
draw.curves({f"α = {alpha} ms": [ends(s, alpha) for s in sizes] for alpha in best}, x=sizes, xlabel="MB in a bucket",
            ylabel="ms until all gradients are summed")

# %% [markdown]
# The dearer a beginning, the larger the best bucket. The curves are flat around the best: a size of twice the best costs
# little. The ends of the curves cost much. That is why libraries take a fixed size. In minispore a bucket may hold a quarter of
# all gradients, but at least 1 and at most 25<!--= minispore.communication.buckets.MOST --> MB; MindSpore's mode "auto" says
# 64<!--= minispore.communication.buckets.AUTO --> MB.
#
# ## See it in the graph
# `ms.compile` makes the program of one of two ranks without starting any, and cuts the batch in two by itself (chapter 08 says
# how). Three layers, and we ask for a new bucket at the gradients with the numbers 2 and 4. Only three kinds of lines are
# printed: the products that make a weight's gradient, and where an AllReduce begins (`Start`) and is waited for (`Wait`).

# %%
ms.set_seed(1)
net = nn.SequentialCell(nn.Dense(64, 32, activation="relu"), nn.Dense(32, 16, activation="relu"), nn.Dense(16, 10))
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Adam(net.trainable_params(), 0.01))
batch = Tensor(np.ones((8, 64), np.float32)), Tensor(np.ones((8, 10), np.float32))


def timetable(**settings):
    """The lines of the program that make or send gradients."""
    program = ms.compile(step, *batch, device_num=2, **settings)
    for line in program.show("overlap").splitlines():
        tensors = re.findall(r"float32\[.*?\]", line.partition(" = ")[0])
        if "MatMul(transpose_a=True" in line:
            print("  the gradient", *tensors)
        elif line.startswith("Wait("):
            print("Wait")
        elif "Start(" in line:
            print(f"Start   {len(tensors)} tensors:", *tensors)


timetable(comm_fusion={"allreduce": {"mode": "index", "config": [2, 4]}})

# %% [markdown]
# The last layer's gradient `[10, 16]` comes first, and its bucket begins while those of the other layers are still to be
# computed. (The loss, `[]`, rides in the first bucket.) Between a `Start` and its `Wait` the rank computes.
#
# Now with one bucket for all:

# %%
timetable(comm_fusion={"allreduce": {"mode": "size", "config": 25}})

# %% [markdown]
# What may stand between Start and Wait? Everything that doesn't need the sums: the gradients of the layers before, and nothing
# of the optimizer that reads them. The compiler finds it out from the graph: an AllReduce goes up to where its input is ready,
# and the wait goes down to the first reader of its result.
#
# ## The same order everywhere
# An AllReduce has no address but its place in line: the third of rank 0 meets the third of rank 1. If two ranks begin their
# buckets in different orders, then in the good case they differ in size, and you get an error:

# %%
def crossed(sizes):
    init()
    names = ["a", "b"] if get_rank() == 0 else ["b", "a"]               # e.g. in the order in which they became ready
    values = {"a": 1.0 + get_rank(), "b": 10.0 + 10 * get_rank()}
    handles = {name: communicator().all_reduce(np.full(sizes[name], values[name])) for name in names}
    return {name: float(handles[name].wait()[0]) for name in "ab"}


print(ranks(2, may_fail=True).run(crossed, {"a": 4, "b": 6}).error)

# %% [markdown]
# In the bad case they have the same size. Rank 0 has a = 1 and b = 10<!--= 5*2 -->, rank 1 has a = 2 and b = 20<!--= 2*10 -->:

# %%
wrong = ranks(2).run(crossed, {"a": 4, "b": 4}).values
print(wrong)
assert wrong[0] == {"a": 21, "b": 12}

# %% [markdown]
# No error, and a weight is moved by another weight's gradient. So the order must follow from something that is the same on all
# ranks: the order of the parameters, or the order of a graph that all ranks compiled alike. Never the order in which something
# became ready, and never the order of a dict or set that was filled as it came.
#
# ## Your turn: E9
# Plan the buckets, then reduce gradients in them. Hints: `hint("e09", 1)` and further.

# %% tags=["exercise"]
# !%%exercise e09

# %% tags=["check"]
check("e09")

# %% [markdown]
# ## Fewer reductions: accumulation
# There is another way to send less. Let the batch be too large for a rank's memory: 32<!--= 4*8 --> rows on each of two ranks,
# and room for eight. So each rank goes through four *micro-batches* (微批次), adds up their gradients, and reduces
# once. This is *gradient accumulation* (梯度累加).

# %%
def accumulated(micro, reduce_each=False):
    """A step on two ranks with 32 rows each, in micro-batches; returns the weights and the AllReduces it took."""
    init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    ms.set_seed(1)
    rng, mine = np.random.default_rng(0), slice(get_rank(), None, get_group_size())
    x, y = rng.normal(size=(64, 20))[mine], rng.normal(size=(64, 5))[mine]
    net = nn.SequentialCell(nn.Dense(20, 8, activation="tanh", dtype=ms.float64), nn.Dense(8, 5, dtype=ms.float64))
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    reducer = nn.DistributedGradReducer(optimizer.parameters)
    forward = ms.value_and_grad(nn.WithLossCell(net, nn.MSELoss()), None, optimizer.parameters)
    total = None
    for rows in np.split(np.arange(len(x)), micro):
        _, gradients = forward(Tensor(x[rows]), Tensor(y[rows]))
        gradients = reducer(gradients) if reduce_each else gradients
        total = gradients if total is None else [a + b for a, b in zip(total, gradients, strict=True)]
    mean = tuple(g / micro for g in total)
    optimizer(mean if reduce_each else reducer(mean))
    return np.concatenate([p.asnumpy().ravel() for p in net.trainable_params()]), len(get_record().collectives())


whole, _ = ranks(2).run(accumulated, 1).values[0]
for micro, each in ((1, False), (4, False), (4, True)):
    weights, calls = ranks(2).run(accumulated, micro, each).values[0]
    when = "after each" if each else "once"
    print(f"{micro} micro-batch(es), reduced {when}: {calls} AllReduce(s), weights differ by {np.abs(weights - whole).max():.0e}")
    assert np.abs(weights - whole).max() < 1e-12 and calls == (micro if each else 1)

# %% [markdown]
# The same step three times, because a sum may be taken in any order: first over micro-batches and then over ranks, or the other
# way round. To reduce once costs a quarter of the communication. Two things to watch: divide by the number of micro-batches,
# and *don't* accumulate with batch norm without thinking (each micro-batch has its own statistics, chapter 05).
#
# ## Quiz
# <details><summary>All gradients of your network are 3 MB. How many buckets does minispore make, and why?</summary>
#
# About three: a bucket may have 1 MB where a quarter of all would be less. (More, if gradients are large: two that don't fit
# together go one by one.) Below 1 MB $\alpha$ is felt beside the bytes.
# </details>
#
# <details><summary>Your network is one huge last layer and many small ones. What do buckets gain?</summary>
#
# Much: the huge gradient is made first, so nearly the whole backward pass hides it. With a huge *first* layer (an embedding) it
# comes last, and nothing is left to hide it.
# </details>
#
# <details><summary>The communication takes longer than the backward pass. Does overlap help?</summary>
#
# It hides as much as the backward pass is long, no more. Then accumulate, send fewer bytes (gradients as `float16`), or take
# larger shards.
# </details>
#
# <details><summary>Can the optimizer's work overlap with the last bucket?</summary>
#
# For parameters whose bucket has arrived, yes: each wait stands before the first reader of that bucket. Unless the optimizer
# needs all gradients at once, as clipping by the global norm does.
# </details>
#
# ## In MindSpore this is …
# | here | In MindSpore this is … |
# |---|---|
# | buckets | `set_auto_parallel_context(comm_fusion={"allreduce": {"mode": "size", "config": 32}})`, in MB; 通信融合 |
# | a new bucket at certain gradients | `comm_fusion` with `"mode": "index"`, or `all_reduce_fusion_config=[2, 4]` |
# | all in one place | `nn.DistributedGradReducer`, 梯度聚合 |
# | which parameters go together | `Parameter.comm_fusion`, `Cell.set_comm_fusion` |
# | overlap | done in `GRAPH_MODE`; in minispore's `PYNATIVE_MODE` each op runs at once, so nothing overlaps |
# | accumulation | `parallel.nn.GradAccumulation(network, micro_size)`, 梯度累加; here the loop above |
#
# In data parallel the reducer bucketed all along. The record shows it:

# %%
def buckets_sent(**settings):
    init()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, **settings)
    ms.set_seed(1)
    net = nn.SequentialCell(nn.Dense(64, 32, activation="relu"), nn.Dense(32, 16, activation="relu"), nn.Dense(16, 10))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    step(*batch)
    return [call.count for call in get_record().collectives()]


print("as it is:                          ", ranks(2).run(buckets_sent).values[0])
indices = ranks(2).run(lambda: buckets_sent(all_reduce_fusion_config=[2, 4]))
print("all_reduce_fusion_config=[2, 4]:   ", indices.values[0], " the last layer's first")
assert indices.values[0] == [16 * 10 + 10, 32 * 16 + 16, 64 * 32 + 32]

# %% [markdown]
# ## Pitfalls
# **A mode without its config.** Both belong into the dict.

# %%
try:
    ms.set_auto_parallel_context(comm_fusion={"allreduce": {"mode": "size"}})
except KeyError as error:
    print(error.args[0])

# %% [markdown]
# **An index twice.**

# %%
try:
    ms.set_auto_parallel_context(all_reduce_fusion_config=[2, 2])
except ValueError as error:
    print(error)

# %% [markdown]
# **A handle that nobody waits for.** `all_reduce(…)` only begins. Read the array before `wait()` and you read whatever is there
# at that moment: old values, half of the sum, or by luck the right ones. Here rank 1 comes late, and rank 0 looks too early.

# %%
@ranks(2)
def too_early():
    init()
    out = np.zeros(3)
    if get_rank() == 1:
        communicator().receive((1,), np.float64, 0).wait()              # until rank 0 has looked
    handle = communicator().all_reduce(np.ones(3), out=out)
    before = out.copy()
    if get_rank() == 0:
        communicator().send(np.ones(1), 1)
    after = handle.wait().copy()


print("rank 0 before wait():", too_early[0].before, " after:", too_early[0].after)
assert (too_early[0].before != 2).all() and (too_early[0].after == 2).all()

# %% [markdown]
# Next: what if not only the batch is split, but the weights too? That needs a language for who has which piece.
