# %% [markdown]
# # 00 · A first program on four ranks
#
# After this chapter you can run a program on several ranks, in the notebook and in the shell, and read from its record who sent
# what to whom. Twenty minutes; nothing comes before.

# %%
import numpy as np

from minispore.communication import communicator, get_group_size, get_rank, init
from minispore.lab import draw, explore, ranks

# !%load_ext minispore.lab

# %% [markdown]
# ## A question
#
# Four people sit round a table. Each has a row of numbers, and all of them shall end up with the sum of all four rows. Each may
# pass notes to the others. How many notes does it take, and how much is on them?
#
# You needn't know. Let four of them do it:

# %%
@ranks(4)
def job():
    init()
    mine = np.arange(8.0) * (get_rank() + 1)
    total = communicator().all_reduce(mine).wait()
    print(f"I had {mine}")
    return total


assert all((total == np.arange(8) * 10).all() for total in job.values)
job.values

# %% [markdown]
# The function ran four times, at the same time. Each run is a *rank* (进程号), a worker with a number. `get_rank()` was 0 in the
# first, 1 in the second, 2 and 3 in the others. That is the only difference between them: **all ranks run the same program.**
#
# `init()` is the first line on every rank: it waits until all have come. `communicator()` stands for all of them together, their
# *group* (通信组). And `all_reduce` takes each rank's array and gives everybody the sum. This is an *AllReduce* (全归约), and you
# will meet it in every chapter: it is how ranks that train one network together agree on a gradient.
#
# ## Look inside
#
# The ranks have ended, but their variables are still there:

# %%
print("rank 2 had", job[2].mine)
print("and got   ", job[2].total)
job.mine

# %% [markdown]
# `job[2].mine` is rank 2's variable, `job.mine` is the list over all ranks. Note that there are four different arrays with the
# name `mine`: no rank sees another's variables. If rank 0 wants something that rank 1 has, rank 1 must send it.
#
# ## Who sent what to whom
#
# Something must have travelled. Every rank keeps a *record* (通信记录) of what it sent and received. We run the same once more
# (the first time, loading the code that adds numbers took longest) and draw what is in the records:

# %%
def add_up(length):
    init()
    mine = np.arange(float(length)) * (get_rank() + 1)
    return communicator().all_reduce(mine).wait()


job = ranks(4).run(add_up, 8)
assert len(job.messages()) == 24
draw.links(job.records)

# %% [markdown]
# Nobody collected all rows. Each rank sent to its right neighbour and to nobody else: the notes went round in a *ring* (环).
#
# Now with time, which goes to the right. An arrow is one *message* (消息), an array from one rank to one other:

# %%
draw.timeline(job.records)

# %% [markdown]
# Try other numbers of ranks and longer rows, and watch two things: do the arrows ever leave the ring? And how much does one rank
# send?

# %%
def records(size, length):
    return ranks(size).run(add_up, length).records


explore(lambda size, row, show: show(records(size, row)), size=[3, 4, 5, 6, 8],
        row={"8 numbers": 8, "64 numbers": 64, "4,000 numbers": 4000}, show={"who to whom": draw.links, "when": draw.timeline})

# %% [markdown]
# ## Reading a record
#
# The same as a table. This is what rank 0 noted:

# %%
record = job.records[0]
print(record.table())

# %% [markdown]
# - The first line is the call in your program, the AllReduce: 8 numbers, with ranks 1, 2 and 3. `ring` is the way it was done.
# - The lines below are the messages it is made of. Rank 0 sent 6 of them to rank 1 and received 6 from rank 3, 2 numbers in each.
# - `ms` is when it began, `took` how long it was under way, both in milliseconds. `#` counts the calls of the group.
#
# A record is data, too. You can count with it:

# %%
messages = job.messages()                       # of all ranks, in order of time
sent = sum(message.bytes for message in messages)
print(len(messages), "messages,", sent, "bytes in all,", sum(m.bytes for m in record.messages()), "of them from rank 0")
assert sent == 384

# %% [markdown]
# Is this much? Here is the obvious way instead: everybody sends the whole row to everybody else.

# %%
@ranks(4)
def everybody():
    init()
    comm = communicator()
    mine = np.arange(8.0) * (comm.rank + 1)
    others = [r for r in range(comm.size) if r != comm.rank]
    for r in others:
        comm.send(mine, to=r)
    return mine + sum(comm.receive((8,), "float64", source=r).wait() for r in others)


assert all((total == np.arange(8) * 10).all() for total in everybody.values)
print(len(everybody.messages()), "messages,", sum(m.bytes for m in everybody.messages()), "bytes")
draw.links(everybody.records)

# %% [markdown]
# A row has 8 numbers of 8 bytes, that is 64<!--= 8*8 --> bytes. With 4 ranks:
#
# | | messages | bytes in all | bytes one rank sends |
# |---|---|---|---|
# | everybody to everybody | 4·3 = 12<!--= 4*3 --> | 12<!--= 4*3 -->·64<!--= 8*8 --> = 768<!--= 12*64 --> | 192<!--= 3*64 --> |
# | the ring | 4·6 = 24<!--= 4*6 --> | 24<!--= 4*6 -->·16<!--= 2*8 --> = 384<!--= 24*16 --> | 96<!--= 6*16 --> |
#
# The ring sends more messages, and half the bytes. With 8 ranks the first way has each rank send 448<!--= 7*64 --> bytes, the
# second 112<!--= 2*7*8 -->. With long rows this is all that counts, and a network's gradient is a very long row. How the ring
# does it is chapter 04.
#
# ## More than sums
#
# An operation that all ranks of a group call together is a *collective* (集合通信). Four of them are enough for most of this course:

# %%
@ranks(4)
def four():
    init()
    comm = communicator()
    mine = np.array([10.0, 20.0, 30.0, 40.0]) + comm.rank
    return {"all_reduce": comm.all_reduce(mine).wait(),
            "broadcast": comm.broadcast(mine, 0).wait(),
            "all_gather": comm.all_gather(mine[:1]).wait(),
            "reduce_scatter": comm.reduce_scatter(mine).wait()}


for name in four.values[0]:
    print(f"{name}:")
    for rank, got in enumerate(four.values):
        print(f"   rank {rank} got {got[name]}")

# %% [markdown]
# - *AllReduce* (全归约): all get the sum.
# - *Broadcast* (广播): all get what one of them has; here rank 0.
# - *AllGather* (全收集): all get everybody's pieces, one behind the other.
# - *ReduceScatter* (归约散发): the sum again, but each rank gets only its own part of it.
#
# Look at the last two once more. Do ReduceScatter, then AllGather of the parts, and you have an AllReduce.
#
# ## The same program in the shell
#
# So far the ranks were *threads* (线程) of this notebook: quick to start, easy to look into, good for learning. For real work each
# rank is a *process* (进程) with a memory of its own, and later a card of its own. The program stays as it is. `%%msrun` writes the
# cell into a file and starts it with the command that you would type in the shell; the command is printed first:

# %%
# !%%msrun -n 4
import numpy as np

from minispore.communication import communicator, get_rank, init

init()
mine = np.arange(8.0) * (get_rank() + 1)
total = communicator().all_reduce(mine).wait()
print(f"rank {get_rank()} has {total}")

# %% [markdown]
# It took longer: four times Python had to start. What is left behind looks the same as before:

# %%
assert (job[2].total == np.arange(8) * 10).all()
print(job)
print(job.records[0].table())

# %% [markdown]
# There is the AllReduce, but not one message! The algorithm is another one, `shared`: processes of one machine can lay their rows
# into a piece of memory that all of them see, and that is faster than passing notes. On a cluster there is no such memory between
# machines. Let's forbid it:

# %%
# !%%msrun -n 4 --env MINISPORE_SHARED_MEMORY=0
import numpy as np

from minispore.communication import communicator, get_rank, init

init()
mine = np.arange(8.0) * (get_rank() + 1)
total = communicator().all_reduce(mine).wait()

# %%
assert len(job.messages()) == 24
print(job.records[0].table())

# %% [markdown]
# The ring, message by message as before. (There are pauses in the first round, in which processes load the code that adds.) Now
# the notes went through *MPI* (消息传递接口), the library that carries messages between the processes of a cluster. You didn't
# install it by hand, it came with minispore.
#
# Outside a notebook you would put the cell into `first.py` and type `msrun --worker_num=4 first.py`.
#
# ## Two ways to go wrong
#
# All ranks must make the same calls. Here rank 2 has a longer row. `may_fail=True` keeps the error instead of raising it:

# %%
@ranks(4, may_fail=True)
def unequal():
    init()
    mine = np.ones(9 if get_rank() == 2 else 8)
    return communicator().all_reduce(mine).wait()


assert unequal.error is not None
print(unequal.error)

# %% [markdown]
# And here rank 2 has something better to do:

# %%
@ranks(4, may_fail=True)
def absent():
    init()
    if get_rank() != 2:
        return communicator().all_reduce(np.ones(8)).wait()


assert absent.error is not None
print(absent.error)

# %% [markdown]
# On a cluster, both would often just hang. Here both end with an error that says which rank is where. Read such an error from its
# list: find the rank that does something else than the others, and look at the line that is named there.
#
# ## Quiz
#
# <details><summary>Rank 0 sets <code>x = 5</code> and then prints <code>x</code> on rank 1. What is printed?</summary>
#
# Whatever rank 1 has set. Each rank has its own `x`, and nobody can see or set another's. Rank 0 would have to send it.
# </details>
#
# <details><summary>Five ranks add up long rows with a ring. How many messages are there?</summary>
#
# Each rank sends one message in each of 2·4 = 8 steps, so 5·8 = 40<!--= 5*2*4 -->. It doesn't depend on the length of the rows.
# Check it above: with 5 ranks the picture has 8 messages on each link.
# </details>
#
# <details><summary>Why does <code>if get_rank() == 0: communicator().all_reduce(x)</code> never do anything useful?</summary>
#
# Only rank 0 calls it, and a collective needs all ranks of the group. Rank 0 waits for ranks that never come.
# </details>
#
# ## In MindSpore
#
# - `init()`, `get_rank()` and `get_group_size()` are **in MindSpore** `mindspore.communication.init`, `get_rank` and
#   `get_group_size`. The three lines mean the same.
# - `communicator().all_reduce(x)` is for numpy arrays, to look at. **In MindSpore this is** the op `ops.AllReduce()`, which you
#   can put into a network; minispore has it, too.
# - `msrun --worker_num=4 first.py` **is in MindSpore** the command of the same name. There, say `--local_worker_num=4` as well:
#   it stands for the ranks on this machine, and is 8 if nothing is said. minispore takes both.
# - A script that says `import mindspore as ms` runs here as it is: where MindSpore isn't installed, the name finds minispore.
#
# ## Pitfalls
#
# Forgetting `init()`, and using what `all_reduce` returns without `wait()`:

# %%
@ranks(2, may_fail=True)
def no_init():
    return get_group_size(), communicator().size


@ranks(2, may_fail=True)
def no_wait():
    init()
    return communicator().all_reduce(np.ones(8)) * 2


for failed in no_init, no_wait:
    assert failed.error is not None
    print(f"{type(failed.error).__name__}: {failed.error}\n")

# %% [markdown]
# The second one isn't a mistake of numpy: `all_reduce` only *begins* the work and gives you a *handle* (句柄), a ticket for the
# result. That is useful, since you can compute something else until you call `wait()`. Chapter 03 begins there.
