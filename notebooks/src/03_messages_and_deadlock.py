# %% [markdown]
# # 03 · Messages and deadlock
#
# At the end you can send arrays from rank to rank, say why a program hangs and who waits for whom, and write exchanges that
# can't hang. About 30 minutes. Chapter 00 comes before.

# %%
import time

import numpy as np

from minispore.communication import communicator, get_record, init
from minispore.communication.hang import report
from minispore.lab import check, draw, explore, hint, ranks

# !%load_ext minispore.lab

# %% [markdown]
# ## A question
#
# Rank 0 waits for rank 1. Rank 1 waits for rank 0. What happens?
#
# On a cluster the usual answer is: nothing. The cards stay reserved, the loss isn't printed any more, and after half an hour
# there is an error that names some rank which did nothing wrong. Let's make it happen here, where we can look inside.
#
# First something that works.

# %%
@ranks(2)
def job():
    init()
    comm = communicator()
    if comm.rank == 0:
        comm.send(np.arange(4.0), to=1)
    else:
        return comm.receive((4,), "float64", source=0).wait()


job.values

# %% [markdown]
# Both *ranks* (进程号) ran the same function. Rank 0 sent four numbers and returned nothing, rank 1 returned what came. That
# is a *message* (消息): one array, from one rank to one other. It carries numbers and nothing else, so the receiver has to
# know shape and dtype before.
#
# The record knows when each of them was where. Time goes to the right:

# %%
draw.timeline(job.records)

# %% [markdown]
# ## Who waits, and when
#
# Now rank 0 is late. Rank 1 doesn't have to stand still until the message comes:

# %%
@ranks(2)
def job():
    init()
    comm = communicator()
    if comm.rank == 0:
        time.sleep(0.02)                                        # late
        comm.send(np.arange(4.0), to=1)
    else:
        handle = comm.receive((4,), "float64", source=0)        # returns at once
        looks = 0
        while not handle.test():                                # is it there?
            looks += 1                                          # here you could compute something useful
        print(f"looked {looks} times before it came: {handle.wait()}")

# %% [markdown]
# `receive` only *begins* to receive. What it returns is a *handle* (句柄): `test()` asks whether the message is there,
# `wait()` stays until it is, and gives it to you. A call that stays is *blocking* (阻塞); `send` and `receive` are not,
# `wait()` is. The difference looks small. All of this chapter hangs on it.
#
# `send` returns a handle, too. It copies your array first, so you may overwrite the array at once, and needn't wait.
#
# ## Which message is which
#
# Rank 0 sends three messages. Rank 1 asks for the last one first:

# %%
@ranks(2)
def job():
    init()
    comm = communicator()
    if comm.rank == 0:
        comm.send(np.array([1.0]), to=1)
        comm.send(np.array([2.0]), to=1)
        comm.send(np.array([9.0]), to=1, tag=7)
    else:
        urgent = comm.receive((1,), "float64", source=0, tag=7).wait()
        first = comm.receive((1,), "float64", source=0).wait()
        second = comm.receive((1,), "float64", source=0).wait()
        return urgent.item(), first.item(), second.item()


assert job.values[1] == (9.0, 1.0, 2.0)
job.values[1]

# %% [markdown]
# Two rules are behind this, and MPI and MindSpore have the same ones:
#
# - Messages with the same *tag* (标签), from one rank to one other, arrive in the order in which they were sent.
# - Another tag is another queue. A receive takes the next message of its own tag and doesn't see the others.
#
# ## Everybody waits
#
# Two ranks want to swap a number. Each one receives the other's and sends its own. `may_fail=True` keeps the error in the
# result, so that we can look at it:

# %%
@ranks(2, may_fail=True)
def swap():
    init()
    comm = communicator()
    other = 1 - comm.rank
    theirs = comm.receive((1,), "float64", source=other).wait()
    comm.send(np.array([comm.rank + 1.0]), to=other)
    return theirs


assert swap.error is not None
print(swap.error)

# %%
draw.waits(swap.records)

# %% [markdown]
# Each rank waits in its first line, for what the other one would send in its second line. Nobody gets to a second line.
#
# The picture has an arrow from each rank that waits to the rank it waits for. It is called the *wait-for graph* (等待图).
# Follow the arrows: if you come back to where you began, nobody on your way can ever go on. Such a circle is a *deadlock*
# (死锁).
#
# Larger circles work the same way. Here each rank shifts a number to its right neighbour. `first` are the ranks that send
# before they receive:

# %%
def all_begin(comm):
    """All ranks begin together, with a record that is empty."""
    comm.barrier().wait()
    get_record().clear()


def shift(size, first):
    def program():
        init()
        comm = communicator()
        left, right = (comm.rank - 1) % size, (comm.rank + 1) % size
        all_begin(comm)
        if comm.rank in first:
            comm.send(np.array([float(comm.rank)]), to=right)
        came = comm.receive((1,), "float64", source=left).wait()
        if comm.rank not in first:
            comm.send(np.array([float(comm.rank)]), to=right)
        return came.item()
    return ranks(size, may_fail=True).run(program)


explore(lambda size, first: draw.waits(shift(size, first).records),
        size=(2, 7), first={"nobody": (), "rank 0": (0,), "ranks 0 and 1": (0, 1)})

# %% [markdown]
# Move the slider: with nobody first, every size is one circle. Then let rank 0 send first. One rank is enough to cut the
# circle, and all messages arrive.
#
# But how do they arrive? Compare one that sends first with all that do:

# %%
one, everybody = shift(5, first=(0,)), shift(5, first=range(5))
assert one.values == everybody.values == [4.0, 0.0, 1.0, 2.0, 3.0]
draw.timeline(one.records)

# %%
draw.timeline(everybody.records)

# %% [markdown]
# With one, the shift goes round like a rumour: rank 1 can't send before it has received, rank 2 waits for rank 1, and so
# on, 5 messages one behind the other. With all, no message waits for another one: they all begin at once. (If yours
# still look like stairs, your ranks began late: they share the cores of one machine.) On a thousand ranks that is the
# difference between one step and a thousand. So a good exchange has no circle, and no long chain either.
#
# ## Who notices?
#
# Your 2 ranks above were threads of this notebook. They share memory in which all see who waits for whom, so the error
# came at once. Ranks on a cluster are processes on many machines. All a process knows is that nothing has come yet. Here
# is the swap once more, on 2 real processes:

# %%
# !%%msrun -n 2 --timeout 30 --env MINISPORE_TIMEOUT=1 --into swap --may-fail
import numpy as np

from minispore.communication import communicator, init

init()
comm = communicator()
other = 1 - comm.rank
theirs = comm.receive((1,), "float64", source=other).wait()
comm.send(np.array([comm.rank + 1.0]), to=other)

# %% [markdown]
# A rank that waits for `MINISPORE_TIMEOUT` seconds without hearing anything gives up. That is a *time-out* (超时). Here we made
# it 1 second; without that it is a minute. (`--timeout` is the job's: it is ended then, waiting or not.) The error has a line
# for each rank, with the line of the script where it stands, so you see the circle in the text.
#
# When ranks end, their records stay beside their logs. From these the shell command `minispore hang LOGDIR` finds out
# the same, also for a job that somebody killed, or that still hangs. In the notebook:

# %%
print(report(swap.records))

# %%
draw.waits(swap.records)

# %% [markdown]
# ## It worked in the test
#
# Now both send first, and then receive. There was no circle a moment ago. We try it with few numbers, and then with many:

# %%
# !%%msrun -n 2 --timeout 30 --env MINISPORE_TIMEOUT=1 --into swap --may-fail
import numpy as np

from minispore.communication import communicator, init

init()
comm = communicator()
other = 1 - comm.rank
for n in (100, 1_000_000):
    comm.send(np.full(n, comm.rank), to=other).wait()
    theirs = comm.receive((n,), "int64", source=other).wait()
    print(f"rank {comm.rank}: {n} numbers have come, all of them {theirs.max()}", flush=True)

# %%
assert swap.error is not None
assert all("100 numbers have come" in text and "1000000 numbers have come" not in text for text in swap.output)
draw.waits(swap.records)

# %% [markdown]
# The same lines, and the second round hangs. A small message is put in a buffer on the way, and the sender goes on
# ("eager"). For a large one there is no buffer: the sender waits until the receiver has begun to receive and there is
# a place for the numbers ("rendezvous"). From which size on, that is up to the MPI library, the network and its settings. A
# program that relies on buffers works on your laptop and hangs on the cluster, or works until the model grows.
#
# Only `wait()` made it hang. So here is the rule for exchanges:
#
# > **Begin everything. Then wait for everything.**
#
# ## In one screen
#
# | | it means | it may wait for |
# |---|---|---|
# | `handle = comm.send(x, to)` | begin to send a copy of `x` | nobody |
# | `handle = comm.receive(shape, dtype, source)` | begin to receive | nobody |
# | `handle.test()` | is it complete? | nobody |
# | `handle.wait()` after `receive` | give me the array | the sender |
# | `handle.wait()` after `send` | until it is on its way | the receiver, if the message is large |
#
# A program hangs exactly if the arrows "waits for" have a circle (a deadlock), or end at a rank that has ended. There are three
# ways to be sure that there is no circle:
#
# 1. Begin all sends and receives, then wait.
# 2. An order without a circle: even ranks send first, odd ranks receive first.
# 3. One call that does the whole exchange, on all ranks: a *collective* (集合通信). The next chapter is about the most
#    important one.
#
# ## Exercise E4: repair a ring shift
#
# Shifts round a ring are what the next chapter is made of. The shift below hangs on any number of ranks, as you have seen
# it in the picture. Write one that never does, also where a send waits for its receive. The grader looks into the record,
# too: one message a rank, to the right neighbour.

# %% tags=["exercise"]
# !%%exercise e04

# %% tags=["check"]
check("e04")

# %% [markdown]
# Stuck? `hint("e04", 1)` shows the first of three hints.
#
# Once your function is there, you can look at it. On 5 ranks, no message should wait for another one:

# %% tags=["exercise"]
def program():
    init()
    comm = communicator()
    all_begin(comm)
    return ring_shift(comm, np.array([float(comm.rank)])).item()


shifted = ranks(5).run(program)
assert shifted.values == [4.0, 0.0, 1.0, 2.0, 3.0]
draw.timeline(shifted.records)

# %% [markdown]
# ## Quiz
#
# **1.** Rank 0 waits for rank 1, rank 1 for rank 2, and rank 2 computes. Is this a deadlock?
#
# <details><summary>Answer</summary>
# No. The arrows end at a rank that can still go on. When rank 2 sends, rank 1 goes on, then rank 0. It only becomes a
# deadlock when rank 2 waits for one of the two. If it ends without having sent, there is no circle, but they wait in vain, too.
# </details>
#
# **2.** On 4 ranks, even ranks send first and then receive, odd ranks the other way round. All sends wait for their receive.
# In how many steps is the shift done? And on 5 ranks?
#
# <details><summary>Answer</summary>
# On 4 ranks in two: first 0→1 and 2→3, then 1→2 and 3→0. On 5 ranks in three: the neighbours 4 and 0 are both even, and both
# send first. So 4→0 can only begin in the second step, when rank 0 is done with its own send, and 3→4 in the third.
# </details>
#
# **3.** Rank 0 does `send(a, tag=1)`, then `send(b, tag=2)`. Rank 1 receives tag 2 first, and waits for it. Can this hang?
#
# <details><summary>Answer</summary>
# As written it can't: rank 0 waits for neither of its sends. If it waits for the first before it begins the second, and
# the message is large, it does hang: rank 0 waits until rank 1 receives tag 1, rank 1 waits for tag 2.
# </details>
#
# **4.** Rank 0 calls `all_reduce`, then `barrier`. Rank 1 calls them in the other order. What happens?
#
# <details><summary>Answer</summary>
# Both wait for the other one to come to where they are: a circle, with collectives for arrows. It is the first error
# in the list below.
# </details>
#
# ## In MindSpore
#
# - `comm.send` and `comm.receive` **in MindSpore are** `mint.distributed.isend` and `irecv`, which return handles, too. The
#   blocking ones are `send` and `recv`. minispore has all four.
# - Inside a network they **are** the ops `ops.Send(sr_tag, dest_rank)` and `ops.Receive(sr_tag, src_rank, shape, dtype)`.
#   Pipeline parallelism is built of them.
# - "Begin everything, then wait" **is** `batch_isend_irecv`, with a list of `P2POp`. On cards a send waits for its receive
#   whatever the size, so there this isn't a matter of taste.
# - The time-out **is** the environment variable `HCCL_EXEC_TIMEOUT` on Ascend. Its default is half an hour: that is why a
#   hanging job says nothing for so long.
#
# ## Pitfalls, with their errors
#
# What you meet in practice is mostly one of these four:

# %%
def different_order():
    init()
    comm = communicator()
    if comm.rank == 0:
        comm.all_reduce(np.ones(3)).wait()
        comm.barrier().wait()
    else:
        comm.barrier().wait()
        comm.all_reduce(np.ones(3)).wait()


def only_on_one_rank():
    init()
    comm = communicator()
    if comm.rank == 0:                                          # "only rank 0 prints the loss"
        print(comm.all_reduce(np.ones(1)).wait())


def wrong_tag():
    init()
    comm = communicator()
    if comm.rank == 0:
        comm.send(np.ones(3), to=1, tag=1)
    else:
        comm.receive((3,), "float64", source=0, tag=2).wait()


def never_received():
    init()
    comm = communicator()
    if comm.rank == 0:
        comm.send(np.ones(3), to=1)


for program in (different_order, only_on_one_rank, wrong_tag, never_received):
    failed = ranks(2, may_fail=True).run(program)
    assert failed.error is not None
    print(f"{program.__name__}: {failed.error}\n")

# %% [markdown]
# - **Different order**: all ranks of a *group* (通信组) must make the same collective calls in the same order. A branch that
#   depends on the data of one rank is the classic way to break this.
# - **Only on one rank**: a collective inside `if rank == 0`. The others never come. Compute on all ranks, print on one.
# - **Wrong tag**: sent and received, but never matched. The same happens with another shape or dtype.
# - **Never received**: nobody waits, so nothing hangs, and yet something is wrong. minispore tells you at the end.
