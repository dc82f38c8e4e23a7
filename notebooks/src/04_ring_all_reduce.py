# %% [markdown]
# # 04 · Ring AllReduce
#
# At the end you can build the AllReduce that distributed training runs on, count its messages and bytes for any number of
# ranks, and say when another way is faster. About 40 minutes. Chapter 03 comes before.

# %%
import inspect

import numpy as np

from minispore.communication import communicator, get_rank, init, selection
from minispore.communication.algorithms import ring_all_reduce, tree_all_reduce
from minispore.device.kernels import reduce
from minispore.lab import check, cost, draw, explore, hint, ranks, watch

# !%load_ext minispore.lab

# %% [markdown]
# ## A question
#
# Each of 4 ranks has an array. Afterwards every rank shall have the sum of all of them. In training these arrays are
# gradients, and it happens after every step. How would you do it?
#
# You know the call from chapter 00:

# %%
def total():
    init()
    x = np.arange(8.0) + 10 * get_rank()
    return communicator().all_reduce(x).wait()


job = ranks(4).run(total)
job.values[2]

# %% [markdown]
# Now write it yourself. The first idea that most people have: all send their array to rank 0, rank 0 adds them up, and sends
# the sum back. In minispore such an algorithm is a generator. It begins messages on a `link`, yields them, and goes on when
# they have arrived ("begin everything, then wait", says chapter 03):

# %%
def through_rank_0(link, x, accumulate):
    if link.rank == 0:
        arrived = np.empty_like(x)
        for other in range(1, link.size):
            yield [link.receive(arrived, other)]
            accumulate(x, arrived)                      # x = x + arrived
        yield [link.send(x, other) for other in range(1, link.size)]
    else:
        yield [link.send(x, 0)]
        yield [link.receive(x, 0)]


with selection.use(ring_all_reduce=through_rank_0):     # the library's own AllReduce now runs on it
    mine = ranks(4).run(total)
assert np.array_equal(mine.values[2], job.values[2])
draw.links(mine.records)

# %% [markdown]
# It works. But look at rank 0: everything goes through it. Rank 0 receives 192 bytes<!--= 3*8*8 --> and sends as many, the others
# 64<!--= 8*8 --> each. With a thousand ranks it would be a thousand arrays, one behind the other, while all others wait.
#
# The library does it without a middleman. The same sum, the same numbers of bytes in all, and no rank has more to do than
# another:

# %%
draw.links(job.records)

# %% [markdown]
# ## Step by step
#
# Each rank sends to its right neighbour only. The ranks form a *ring* (环). But what do they send? Move the slider.
#
# A box is a rank, a cell in it one element of its array. The stripes in a cell say whose numbers are in it, a colour for each
# rank. In the beginning each rank has its own. A cell that has all stripes is done.

# %% tags=["picture"]
def ring(step, ranks, algorithm=ring_all_reduce):
    watched = watch(algorithm, ranks, length=2 * ranks)
    return draw.steps(watched, min(step, watched.steps))


explore(ring, step=(0, 8), ranks=[2, 3, 4, 5]).set(ranks=4)

# %% [markdown]
# On 4 ranks it takes 6 steps. What you saw:
#
# - **Steps 1 to 3.** The array is cut into 4 chunks. Each chunk goes on a journey round the ring. At every stop that rank's own
#   numbers are added. After 3 steps each chunk is complete, and each one on another rank. This is a *ReduceScatter* (归约散发).
# - **Steps 4 to 6.** The complete chunks go round once more. Nothing is added, they are only copied. Then everybody has
#   everything. This is an *AllGather* (全收集).
#
# One behind the other they are an *AllReduce* (全归约). All links are busy in all steps, and nobody waits for a middleman.
#
# ## Exercise E5: the first half
#
# Write the ReduceScatter. A chunk belongs to the rank of its number: chunk 2 must be complete on rank 2. So ask yourself for
# each step: which chunk do I send, which one comes?

# %% tags=["exercise"]
# !%%exercise e05

# %% tags=["check"]
check("e05")

# %% [markdown]
# Stuck? `hint("e05", 1)` is a gentle one. And when you have written it, watch your own:

# %% tags=["exercise"]
mine = watch(reduce_scatter, ranks=4, length=8)
print(mine)
explore(lambda step: draw.steps(mine, step), step=(0, mine.steps))

# %% [markdown]
# ## How many bytes?
#
# Count them, on any number of ranks. `watch` knows each message, and how many elements are in it:

# %%
print("ranks  steps  messages  elements a rank sends  of its array")
for p in range(2, 9):
    length = 4 * p                                      # p chunks of 4 elements
    watched = watch(ring_all_reduce, p, length)
    sent = sum(m.count for m in watched.messages if m.source == 0)
    assert len(watched.messages) == 2 * p * (p - 1) and sent == 2 * (p - 1) * length // p
    print(f"{p:5}  {watched.steps:5}  {len(watched.messages):8}  {sent:21}  {sent / length:12.2f}")

# %% [markdown]
# Read the last column. On 2 ranks each rank sends its array once. On 8 ranks it sends 1.75<!--= 2*(8-1)/8 --> times its array. On
# a thousand ranks it is 1.998<!--= 2*(1000-1)/1000 --> times. That is the reason why rings are used: however many ranks there
# are, a rank never sends more than twice its array.
#
# In general, on $p$ ranks:
#
# | | steps | messages in all | a rank sends |
# |---|---|---|---|
# | ReduceScatter | $p-1$ | $p(p-1)$ | $\frac{p-1}{p}$ of its array |
# | AllGather | $p-1$ | $p(p-1)$ | $\frac{p-1}{p}$ |
# | AllReduce | $2(p-1)$ | $2p(p-1)$ | $2\,\frac{p-1}{p}$ |
#
# Fewer bytes for the rank that sends most aren't possible (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
# clusters of workstations", 2009). Fewer steps are, as you'll see.
#
# The gradients of a network with 25 million<!--= 25 --> parameters in float32 are 100 MB<!--= 25*4 -->. On 4 ranks each one sends
# 150 MB<!--= 100*2*3/4 --> a step, on 64 ranks<!--= 64 --> 196.9 MB<!--= 100*2*63/64 -->.
#
# ## Exercise E6: any length
#
# Put the second half behind the first. And mind the chunks: 10<!--= 10 --> numbers on 4 ranks can't be cut evenly, and of 2
# numbers on 4 ranks some chunks are empty.

# %% tags=["exercise"]
# !%%exercise e06

# %% tags=["check"]
check("e06")

# %% [markdown]
# ## What a message costs
#
# A ring on $p$ ranks takes $2(p-1)$ steps, and each step has to wait for the one before. Is that bad? It depends on what a
# message costs. There is a simple model, in which a message of $n$ bytes takes
#
# $$\alpha + n\beta$$
#
# seconds. *Latency* (时延) $\alpha$ is what each message costs, even an empty one. $\beta$ is what each byte costs: one over the
# *bandwidth* (带宽). It is called the *α–β model* (α–β 模型).
#
# A *tree* (树形算法) has few steps: in each round twice as many ranks are reached. Watch it sum up to rank 0, and send the sum
# back:

# %%
def tree(step, ranks):
    watched = watch(tree_all_reduce, ranks, length=4)
    return draw.steps(watched, min(step, watched.steps))


explore(tree, step=(0, 6), ranks=[2, 4, 5, 8]).set(ranks=8)

# %% [markdown]
# On 8 ranks the tree takes 6 steps<!--= 2*3 -->, the ring takes 14<!--= 2*(8-1) -->. But the tree sends the whole array in each
# of them. So the ring has few bytes, the tree few messages:
#
# | AllReduce by | seconds |
# |---|---|
# | ring | $2(p-1)\,\alpha + 2\frac{p-1}{p}\,n\beta$ |
# | tree | $2\lceil\log_2 p\rceil\,(\alpha + n\beta)$ |
#
# Which one wins? Choose a network:

# %%
NETWORKS = {"one machine": (2e-6, 1e-10), "fast cluster": (5e-6, 4e-11), "Ethernet": (50e-6, 1e-9)}     # α in s, β in s/byte
sizes = [2.0 ** k for k in range(6, 27, 2)]


def compare(network, ranks):
    alpha, beta = NETWORKS[network]
    return draw.curves({by: cost.seconds(by, ranks=ranks, bytes=np.array(sizes), alpha=alpha, beta=beta) * 1e6
                        for by in ("ring", "tree")}, x=sizes, xlabel="bytes", ylabel="µs", log=True)


explore(compare, network=list(NETWORKS), ranks=[4, 8, 64, 512]).set(ranks=64)

# %% [markdown]
# Left of the *crossover* (交叉点) the tree is faster, right of it the ring. The more ranks, the farther to the right it lies. For
# small arrays latency is everything, for large ones bandwidth. That is why libraries choose by size.
#
# ## Exercise E7: predict the crossover
#
# Below how many bytes is the tree faster? Solve it on paper first, then write it down. Think of odd cases, too: 2 ranks, or a
# network where messages cost nothing.

# %% tags=["exercise"]
# !%%exercise e07

# %% tags=["check"]
check("e07")

# %% [markdown]
# ## The real thing, message by message
#
# So far the ranks were threads of this notebook. Now they are 4 processes, and messages go over *MPI* (消息传递接口), the library
# that supercomputers have used for thirty years. The algorithm is the very same generator.

# %%
# !%%msrun -n 4 --env MINISPORE_SHARED_MEMORY=0 --into ring_job
import numpy as np

from minispore.communication import communicator, get_rank, get_record, init

init()
comm = communicator()
x = np.full(1000, float(get_rank()))
comm.all_reduce(x).wait()               # the first one loads the compiled loops
comm.barrier().wait()
get_record().clear()
total = comm.all_reduce(x).wait()

# %%
assert all((total == 0 + 1 + 2 + 3).all() for total in ring_job.total)
messages = ring_job.messages()
links = {(m.rank, m.peers[0]) for m in messages}
assert len(messages) == 24 and links == {(0, 1), (1, 2), (2, 3), (3, 0)}
print(ring_job.records[0].table())

# %% [markdown]
# This is what rank 0 did: one AllReduce, and in it 6 sends and 6 receives, 250 numbers<!--= 1000//4 --> each. All ranks together
# sent 24 messages<!--= 2*4*3 --> over 4 links, and each rank 12,000 bytes<!--= 2*3/4*8000 -->: one and a half times its array of
# 8,000 bytes<!--= 1000*8 -->. The same on a time axis:

# %%
draw.timeline(ring_job.records)

# %% [markdown]
# Between two messages of the first half there is a sum. It is a loop compiled by Numba, as you wrote them in chapter 02:

# %%
print(inspect.getsource(reduce.add.python))

# %% [markdown]
# ## Faster: memory that all share
#
# Ranks on one machine needn't send messages. They can look into each other's memory. Then there is no ring at all: each rank
# reads a part of all arrays, adds it up, and writes the result. It is what minispore does by itself when it can; above we
# forbade it. Measure both, on 2 ranks:

# %%
# !%%msrun -n 2 --into both
import time

import numpy as np

from minispore.communication import communicator, get_record, init
from minispore.communication.selection import algorithm


def measure(comm, turns=20):
    medians = []
    for n in sizes:
        x, taken = np.ones(n // 4, np.float32), []
        for _ in range(turns):
            comm.barrier().wait()
            begin = time.perf_counter()
            comm.all_reduce(x).wait()
            taken.append(time.perf_counter() - begin)
        medians.append(float(np.median(taken)))
    return medians


init()
sizes = [2 ** k for k in range(8, 21, 2)]               # bytes
measure(communicator(), turns=2)
in_memory = measure(communicator())
messages = len(get_record().messages())
with algorithm("ring"):                                 # whatever would be faster
    measure(communicator(), turns=2)
    over_mpi = measure(communicator())

# %%
assert both[0].messages == 0                            # not a single one, until the ring was asked for
draw.curves({"ring over MPI": np.array(both[0].over_mpi) * 1e6, "shared memory": np.array(both[0].in_memory) * 1e6},
            x=both[0].sizes, xlabel="bytes", ylabel="µs", log=True)

# %% [markdown]
# What are $\alpha$ and $\beta$ of this machine? On 2 ranks the ring takes $2\alpha + n\beta$, so a straight line through the
# measured times gives both:

# %%
intercept, beta = cost.fit(both[0].sizes, both[0].over_mpi)
alpha = intercept / 2
print(f"over MPI: α = {alpha * 1e6:.1f} µs a message, 1/β = {1 / beta / 1e9 if beta else np.inf:.1f} GB/s")
print(f"so on 8 such ranks a tree would be faster below {cost.crossover('tree', 'ring', ranks=8, alpha=alpha, beta=beta):,.0f} bytes")

# %% [markdown]
# ## Quiz
#
# **1.** Twice as many ranks, the same array. Does a ring AllReduce take twice as long?
#
# <details><summary>Answer</summary>
# For a small array yes, and a little more: 2(2p−1) steps instead of 2(p−1), and each costs α. For a large one no: the bytes a
# rank sends grow from 2(p−1)/p to a little more, and stay below twice the array.
# </details>
#
# **2.** Why are all sums the same on all ranks, to the last bit, although floats are rounded?
#
# <details><summary>Answer</summary>
# Each chunk is summed up once, in one order, on its way round the ring. In the second half it is only copied. If every rank
# added for itself in another order, the last bits could differ, and with them, after some steps, the weights.
# </details>
#
# **3.** One link of the ring is ten times slower than the others. How much slower is the AllReduce of a large array?
#
# <details><summary>Answer</summary>
# Nearly ten times. In each step every link carries a chunk, and the next step waits for the slowest. That is why the order of
# the ranks on the ring matters, and why between machines there are hierarchical algorithms.
# </details>
#
# **4.** Could the chunks be summed in the other direction, too, at the same time?
#
# <details><summary>Answer</summary>
# Yes: half of the array goes round to the right, the other half to the left. Where links can send and receive at once in both
# directions, it takes half of the time. NCCL builds several rings for this reason.
# </details>
#
# ## In MindSpore
#
# - `communicator().all_reduce(x)` **in MindSpore is** the op `ops.AllReduce(op=ops.ReduceOp.SUM)`, or
#   `mint.distributed.all_reduce(x)`, in place.
# - The halves **are** `ops.ReduceScatter` and `ops.AllGather`. Optimizer parallel uses them one by one.
# - The algorithm **is** chosen by HCCL (Ascend) or NCCL (GPU). Variables can name it: `HCCL_ALGO` for each level of the
#   network, `NCCL_ALGO`, with `ring` and `tree`. In minispore it is `MINISPORE_ALGORITHM=tree`, and a table that you can
#   measure yourself with `minispore bench collectives --save`.
#
# ## Pitfalls, with their errors

# %%
def other_length():
    init()
    n = 8 if get_rank() < 2 else 9
    communicator().all_reduce(np.ones(n)).wait()


def other_dtype():
    init()
    communicator().all_reduce(np.ones(8, np.float32 if get_rank() else np.float64)).wait()


for program in (other_length, other_dtype):
    failed = ranks(3, may_fail=True).run(program)
    assert failed.error is not None
    print(f"{program.__name__}: {failed.error}\n")

# %% [markdown]
# - **Another length** on some rank: the last batch of an epoch is shorter there, or its layer has another size. The ranks then
#   cut their arrays into different chunks; nothing good could come of it.
# - **Another dtype**: one rank runs in mixed precision, the others don't.
# - **Another result than on one rank**, in the last digits: $(a + b) + c$ and $a + (b + c)$ are rounded differently. That is no
#   mistake. Compare with a tolerance, or in float64 as chapter 05 does.
