"""Faulty programs: what users get wrong when ranks should do the same. test_no_hang.py runs them on threads and on MPI.

Each is the body that every rank runs after init(), with np, ms, nn, ops, Tensor, comm (the world's Communicator), rank and size
at hand. `says` must be in the message; a tuple in it names alternatives. Of the `fast` ones,
one of each kind, `make test` runs those on MPI too.
"""
from dataclasses import dataclass

THREADS, MPI = ("threads",), ("mpi",)


@dataclass(frozen=True)
class Faulty:
    name: str
    ranks: int
    code: str
    says: tuple
    on: tuple = ("threads", "mpi")
    fast: bool = False
    init: bool = True           # False: the body does everything itself
    line: bool = True           # the message names a line of the script where a rank waits


ENDED = ("has ended", "can't come any more")
DIFFER = "op, dtype, count, root and algorithm must agree on all ranks"
TIME = ("MINISPORE_TIMEOUT", "all ranks wait for one another")      # thread ranks know at once

TRAIN = """
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
net = nn.Dense(4, 2)
optimizer = nn.SGD(net.trainable_params(), 0.1)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
x, y = Tensor(np.ones((3, 4), np.float32)), Tensor(np.ones((3, 2), np.float32))
"""

DATA = """
def data(rows):
    def rows_of():
        for i in range(rows):
            yield np.full(4, i, np.float32), np.ones(2, np.float32)
    return ms.dataset.GeneratorDataset(rows_of, ["x", "y"], shuffle=False).batch(2)
"""

CASES = [
    # ---- a branch that depends on the rank -----------------------------------------------------------
    Faulty("branch_on_rank_0", 2, "if rank == 0:\n    comm.all_reduce(np.ones(3)).wait()\n",
           ("AllReduce(sum) number 1", "rank 1: has ended"), fast=True),
    Faulty("branch_barrier", 2, "if rank != 1:\n    ops.Barrier()()\n", ("Barrier", "rank 1: has ended after 0")),
    Faulty("branch_in_a_network", 2, """
class Net(nn.Cell):
    def construct(self, x):
        return ops.AllReduce()(x) if self.training else x
net = Net().set_train(rank == 0)
for step in range(2):
    net(Tensor(np.ones(5, np.float32)))
""", ("AllReduce(sum) number 1", "5 × float32", "rank 1: has ended")),
    Faulty("branch_on_data", 3, """
for step in range(3):
    loss = comm.rank * step
    if loss > 1:
        continue
    comm.all_reduce(np.ones(4)).wait()
comm.all_gather(np.ones(4)).wait()
""", (DIFFER, "rank 2", "AllReduce(sum)", "AllGather")),
    Faulty("branch_in_graph_mode", 2, """
ms.set_context(mode=ms.GRAPH_MODE)
@ms.jit
def loss(x):
    return ops.sum(ops.AllReduce()(x)) if rank == 0 else ops.sum(ops.Broadcast(0)((x,))[0])
loss(Tensor(np.ones(6, np.float32)))
""", (DIFFER, "AllReduce", "Broadcast", "6 × float32")),
    Faulty("branch_barrier_in_a_loop", 2, """
for epoch in range(3):
    ops.AllReduce()(Tensor(np.ones(2, np.float32)))
    if rank == 0:
        ops.Barrier()()
""", (DIFFER, "Barrier", "AllReduce")),
    # ---- swapped order -------------------------------------------------------------------------------
    Faulty("swapped_ops", 2, """
calls = [lambda: comm.all_gather(np.ones(4)), lambda: comm.all_reduce(np.ones(4))]
for call in calls if rank else calls[::-1]:
    call().wait()
""", (DIFFER, "AllGather", "AllReduce"), fast=True),
    Faulty("swapped_gradients", 2, """
gradients = [np.ones(3, np.float32), np.ones(5, np.float32)]
for g in gradients if rank else gradients[::-1]:
    ops.AllReduce()(Tensor(g))
""", (DIFFER, "AllReduce", "3 × float32", "5 × float32")),
    Faulty("swapped_asynchronous", 2, """
calls = [lambda: comm.barrier(), lambda: comm.all_reduce(np.ones(4))]
handles = [call() for call in (calls if rank else calls[::-1])]
for handle in handles[::-1]:
    handle.wait()
""", (DIFFER, "Barrier", "AllReduce")),
    Faulty("swapped_broadcasts", 3, """
for root in (0, 1) if rank else (1, 0):
    ops.Broadcast(root)((Tensor(np.ones(2, np.float32)),))
""", (DIFFER, "Broadcast", "root 0", "root 1")),
    Faulty("other_algorithm", 2, """
with ms.communication.selection.algorithm("tree" if rank else "recursive_doubling"):
    comm.all_reduce(np.ones(4)).wait()
""", (DIFFER, "by tree", "by recursive_doubling"), fast=True),
    Faulty("memory_or_messages", 2, """
with ms.communication.selection.algorithm("tree" if rank else "shared"):
    comm.all_reduce(np.ones(4)).wait()
""", (DIFFER, "by tree", "by shared"), MPI),
    # ---- wrong root ----------------------------------------------------------------------------------
    Faulty("wrong_root", 2, "comm.broadcast(np.ones(4), root=int(rank == 1)).wait()\n",
           (DIFFER, "Broadcast", "root 0", "root 1"), fast=True),
    Faulty("everybody_is_root", 2, "ops.Broadcast(rank)((Tensor(np.ones(4, np.float32)),))\n", (DIFFER, "Broadcast", "root 0")),
    Faulty("wrong_root_of_reduce", 3, "ops.Reduce(rank % 2)(Tensor(np.ones(4, np.float32)))\n",
           (DIFFER, "Reduce", "root 0", "root 1")),
    Faulty("wrong_root_of_gather", 2, "comm.gather(np.ones(4), root=rank).wait()\n", (DIFFER, "Gather", "root 0", "root 1")),
    Faulty("wrong_root_of_scatter", 2, "comm.scatter(np.ones(4), root=1 - rank).wait()\n", (DIFFER, "Scatter", "root 0")),
    # ---- wrong count ---------------------------------------------------------------------------------
    Faulty("wrong_count", 3, "comm.all_reduce(np.ones(6 + (rank == 2)), name='weights').wait()\n",
           (DIFFER, "AllReduce", "6 × float64", "7 × float64"), fast=True),
    Faulty("wrong_count_of_all_gather", 2, "ops.AllGather()(Tensor(np.ones((2 + rank, 3), np.float32)))\n",
           (DIFFER, "AllGather", "6 × float32", "9 × float32")),
    Faulty("wrong_count_of_reduce_scatter", 2, "ops.ReduceScatter()(Tensor(np.ones((2 + 2 * rank, 3), np.float32)))\n",
           (DIFFER, "ReduceScatter", "6 × float32", "12 × float32")),
    Faulty("wrong_count_of_all_to_all", 2, "ops.AlltoAll(2)(Tensor(np.ones((2 + 2 * rank, 3), np.float32)))\n",
           (DIFFER, "AlltoAll", "6 × float32", "12 × float32")),
    Faulty("networks_of_two_sizes", 2, """
net = nn.Dense(4, 2 + rank)
reducer = nn.DistributedGradReducer(net.trainable_params())
reducer(tuple(Tensor(np.ones(p.shape, np.float32)) for p in net.trainable_params()))
""", (DIFFER, "AllReduce", "10 × float32", "15 × float32")),
    # ---- wrong dtype, wrong reduction ----------------------------------------------------------------
    Faulty("wrong_dtype", 2, "comm.all_reduce(np.ones(6, np.float32 if rank == 1 else np.float64)).wait()\n",
           (DIFFER, "AllReduce", "6 × float32", "6 × float64"), fast=True),
    Faulty("wrong_dtype_of_broadcast", 2, "ops.Broadcast(0)((Tensor(np.ones(6, (np.int32, np.int64)[rank])),))\n",
           (DIFFER, "Broadcast", "6 × int32", "6 × int64")),
    Faulty("gradients_of_two_dtypes", 2, """
ms.set_auto_parallel_context(gradient_fp32_sync=False)
net = nn.Dense(4, 2)
reducer = nn.DistributedGradReducer(net.trainable_params())
dtype = np.float16 if rank else np.float32
reducer(tuple(Tensor(np.ones(p.shape, dtype)) for p in net.trainable_params()))
""", (DIFFER, "AllReduce", "10 × float16", "10 × float32")),
    Faulty("wrong_reduction", 2, "ops.AllReduce('max' if rank else 'sum')(Tensor(np.ones(6, np.float32)))\n",
           (DIFFER, "AllReduce(max)", "AllReduce(sum)")),
    # ---- a missing rank ------------------------------------------------------------------------------
    Faulty("missing_rank_sleeps", 2, """
if rank == 1:
    time.sleep(8)
comm.all_reduce(np.ones(3), name="gradients").wait()
""", ("AllReduce(gradients) number 1", "MINISPORE_TIMEOUT", "rank 1: computes"), fast=True),
    Faulty("missing_rank_computes", 2, "while rank == 1:\n    pass\nops.Barrier()()\n",
           ("Barrier", "MINISPORE_TIMEOUT", "rank 1: computes")),
    Faulty("missing_in_a_group", 3, """
if rank != 2:
    ms.create_group("three", [0, 1, 2])
    comm = ms.communication.communicator("three")
    comm.all_reduce(np.ones(3)).wait()
""", ("AllReduce(sum)", "group three", "rank 2: has ended")),
    Faulty("missing_init_ends", 2, "if os.environ['RANK_ID'] == '0':\n    ms.init()\n",
           ("rank 0 waits in init() for rank 1", "ended without calling it"), MPI, init=False, line=False),
    Faulty("missing_init_sleeps", 3, "if os.environ['RANK_ID'] == '1':\n    time.sleep(30)\nms.init()\n",
           ("rank 0 waits in init() for rank 1", "MINISPORE_TIMEOUT"), MPI, init=False, line=False),
    # ---- early exit ----------------------------------------------------------------------------------
    Faulty("early_exit", 3, """
for step in range(4):
    if rank == 2 and step == 2:
        break
    comm.all_reduce(np.ones(3)).wait()
""", ("AllReduce(sum) number 3", "rank 2: has ended after 2 communications"), fast=True),
    Faulty("exit_0_in_the_middle", 2, "comm.barrier().wait()\nif rank == 1:\n    sys.exit(0)\ncomm.barrier().wait()\n",
           ("Barrier() number 2", "rank 1: has ended after 1"), MPI),
    Faulty("exit_3_in_the_middle", 2, "comm.barrier().wait()\nif rank == 1:\n    sys.exit(3)\ncomm.barrier().wait()\n",
           ("rank 1 failed first, with exit code 3",), MPI, line=False),
    Faulty("exit_without_a_word", 2, "comm.barrier().wait()\nif rank == 1:\n    os._exit(0)\ncomm.barrier().wait()\n",
           ("rank 1 failed first: its process ended without an error, exit code 0",), MPI, line=False),
    Faulty("release_too_early", 2, """
comm.barrier().wait()
if rank == 1:
    ms.release()
else:
    comm.barrier().wait()
""", ("Barrier() number 2", "rank 1: has ended after 1")),
    # ---- an exception on one rank --------------------------------------------------------------------
    Faulty("exception_before_a_collective", 2, """
if rank == 1:
    raise ValueError("a bad batch")
comm.all_reduce(np.ones(3)).wait()
""", ("ValueError: a bad batch", "rank 1"), line=False, fast=True),
    Faulty("exception_in_a_network", 2, TRAIN + """
step(x if rank == 0 else Tensor(np.ones((3, 5), np.float32)), y)
""", ("Error: ", "rank 1", "5"), line=False),
    Faulty("exception_swallowed", 2, """
for batch in range(3):
    try:
        if rank == 1 and batch == 1:
            raise KeyError("skip it")
        comm.all_reduce(np.ones(3)).wait()
    except KeyError:
        pass
    comm.barrier().wait()
""", (DIFFER, "AllReduce", "Barrier")),
    Faulty("exception_on_all_ranks", 3, "comm.barrier().wait()\n1 / 0\n", ("ZeroDivisionError", "rank "), line=False),
    Faulty("exception_in_a_dataset", 2, TRAIN + """
def rows():
    for i in range(8):
        if rank == 1 and i == 5:
            raise OSError("a broken file")
        yield np.ones(4, np.float32), np.ones(2, np.float32)
data = ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(2)
for x, y in data.create_tuple_iterator():
    step(x, y)
""", ("a broken file", "rank 1"), line=False),
    # ---- a rank that is killed -----------------------------------------------------------------------
    Faulty("kill_9", 2, """
comm.barrier().wait()
if rank == 1:
    os.kill(os.getpid(), 9)
comm.all_reduce(np.ones(3)).wait()
""", ("rank 1 failed first: killed by SIGKILL",), MPI, line=False, fast=True),
    Faulty("kill_9_in_a_large_all_reduce", 2, """
x = np.ones(1 << 22, np.float32)
if rank == 1:
    import threading
    threading.Timer(0.3, os.kill, (os.getpid(), 9)).start()
while True:
    comm.all_reduce(x).wait()
""", ("rank 1 failed first: killed by SIGKILL",), MPI, line=False),
    Faulty("kill_9_while_all_wait", 3, """
import threading
if rank == 1:
    threading.Timer(0.3, os.kill, (os.getpid(), 9)).start()
if rank == 2:
    time.sleep(30)
comm.all_reduce(np.ones(3)).wait()
""", ("rank 1 failed first: killed by SIGKILL",), MPI, line=False),
    Faulty("segmentation_fault", 2, """
comm.barrier().wait()
if rank == 1:
    import ctypes
    ctypes.string_at(0)
comm.barrier().wait()
""", ("rank 1 failed first: killed by SIGSEGV",), MPI, line=False),
    # ---- messages ------------------------------------------------------------------------------------
    Faulty("send_without_receive", 2, """
if rank == 0:
    ops.Send(7, 1)(Tensor(np.ones(3, np.float32)))
comm.barrier().wait()
""", ("rank 1", "rank 0", "never received"), line=False, fast=True),
    Faulty("send_for_an_answer", 2, """
if rank == 0:
    comm.send(np.ones(3), 1, tag=7)
    comm.receive(3, "float64", 1, tag=8).wait()
else:
    comm.barrier().wait()
""", ("Receive(tag 8) from rank 1", "Barrier", TIME)),
    Faulty("receive_without_send", 2, "if rank == 1:\n    ops.Receive(7, 0, (3,), ms.float32)()\n",
           ("Receive(tag 7) from rank 0", "3 × float32", "rank 0: has ended")),
    Faulty("circular_receive", 3, "ops.Receive(7, (rank + 1) % size, (3,), ms.float32)()\n",
           ("Receive(tag 7) from rank 1", "Receive(tag 7) from rank 2", "Receive(tag 7) from rank 0", TIME), fast=True),
    Faulty("circular_receive_of_two", 2, """
got = comm.receive(3, "float64", 1 - rank).wait()
comm.send(np.ones(3), 1 - rank)
""", ("Receive(tag 0) from rank 1", "Receive(tag 0) from rank 0", TIME)),
    Faulty("wrong_tag", 2, """
if rank == 0:
    comm.send(np.ones(3), 1, tag=1)
else:
    comm.receive(3, "float64", 0, tag=2).wait()
""", ("Receive(tag 2) from rank 0", "rank 0: has ended")),
    Faulty("wrong_peer", 3, """
if rank == 0:
    comm.send(np.ones(3), 1)
elif rank == 2:
    comm.receive(3, "float64", 0).wait()
""", ("Receive(tag 0) from rank 0", "rank 0: has ended")),
    Faulty("message_of_another_size", 2, """
if rank == 0:
    comm.send(np.ones(2), 1)
else:
    comm.receive(4, "float64", 0).wait()
""", ("Receive(tag 0) from rank 0", "4 × float64")),
    Faulty("message_of_another_dtype", 2, """
if rank == 0:
    ops.Send(0, 1)(Tensor(np.ones(4, np.float32)))
    comm.barrier().wait()
else:
    ops.Receive(0, 0, (4,), ms.float64)()
    comm.barrier().wait()
""", ("Receive(tag 0) from rank 0", "4 × float64", "Barrier", TIME)),
    Faulty("neighbours_that_disagree", 3, """
to = (rank + 1) % size
shape = ((2,),)
ops.NeighborExchange((to,), (to,), shape, shape, ms.float32)((Tensor(np.ones(2, np.float32)),))
""", ("Receive", "rank 0", "rank 1", "rank 2", TIME)),
    # ---- groups --------------------------------------------------------------------------------------
    Faulty("two_groups_crossed", 2, """
for name in "ab":
    ms.create_group(name, [0, 1])
for name in "ab" if rank else "ba":
    ops.AllReduce("sum", name)(Tensor(np.ones(2, np.float32)))
""", ("AllReduce(sum) number 1 of group a", "AllReduce(sum) number 1 of group b", TIME), fast=True),
    Faulty("group_and_world_crossed", 3, """
if rank < 2:
    ms.create_group("pair", [0, 1])
if rank == 0:
    ms.communication.communicator("pair").all_reduce(np.ones(2)).wait()
comm.all_reduce(np.ones(2)).wait()
if rank == 1:
    ms.communication.communicator("pair").all_reduce(np.ones(2)).wait()
""", ("of group pair", "of group hccl_world_group", TIME)),
    Faulty("three_groups_in_a_circle", 3, """
pairs = {"a": [0, 1], "b": [1, 2], "c": [0, 2]}
for name, ranks in pairs.items():
    if rank in ranks:
        ms.create_group(name, ranks)
for name in ("ac", "ba", "cb")[rank]:
    ms.communication.communicator(name).barrier().wait()
""", ("of group a", "of group b", "of group c", TIME)),
    Faulty("group_of_another_order", 2, """
ms.create_group("pair", [0, 1] if rank else [1, 0])
ops.AllReduce("sum", "pair")(Tensor(np.ones(2, np.float32)))
""", ("AllReduce(sum) number 1 of group pair", TIME)),
    Faulty("group_that_is_not_there", 2, """
if rank == 0:
    ms.create_group("mine", [0])
ops.AllReduce("sum", "mine")(Tensor(np.ones(2, np.float32)))
""", ("group 'mine' does not exist on rank 1",), line=False),
    # ---- one rank a step more ------------------------------------------------------------------------
    Faulty("a_step_more", 2, "for step in range(3 + (rank == 1)):\n    comm.all_reduce(np.ones(3)).wait()\n",
           ("AllReduce(sum) number 4", "after 3 communications", ENDED), fast=True),
    Faulty("model_with_unequal_data", 2, TRAIN + DATA + """
ms.Model(net, nn.MSELoss(), optimizer).train(1, data(8 + 2 * rank), dataset_sink_mode=False)
""", ("Model.train", "steps", "rank"), line=False),
    Faulty("loop_with_unequal_data", 2, TRAIN + DATA + """
for x, y in data(6 + 2 * rank).create_tuple_iterator():
    step(x, y)
""", ("AllReduce", "10 × float32", "rank 0: has ended")),
    Faulty("evaluation_on_rank_0", 2, TRAIN + DATA + """
model = ms.Model(net, nn.MSELoss(), optimizer, metrics={"mse": nn.MSE()})
for epoch in range(2):
    model.train(1, data(4), dataset_sink_mode=False)
    if rank == 0:
        model.eval(data(4), dataset_sink_mode=False)
""", ("Model.", "rank 0 is in Model.eval", "rank 1 is in Model.train"), line=False),
    Faulty("parameters_broadcast_by_one_rank", 2, TRAIN.replace(
        "gradients_mean=True", "gradients_mean=True, parameter_broadcast=rank == 0") + "step(x, y)\n",
           (DIFFER, "Broadcast", "AllReduce")),
]
