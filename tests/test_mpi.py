"""MPI ranks: LeNet's golden values, the ring's record, every collective, random numbers of ranks."""
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from networks import golden_lenet

from minispore.communication import segment
from minispore.communication.record import Record

LENET = """
import json, sys
import numpy as np
import minispore as ms
from minispore import Tensor, nn
from networks import LeNet5, golden_lenet, train_steps
golden, x, y = golden_lenet()
ms.init()
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
net = LeNet5()
for p in net.trainable_params():
    p.set_data(Tensor(golden[f"init/{p.name}"]))
losses = train_steps(net, nn.SGD(net.trainable_params(), 0.01, 0.9), x, y, 64, 20)
worst = max(float(np.abs(p.asnumpy() - golden[f"final_1w/{p.name}"]).max()) for p in net.trainable_params())
print(json.dumps([ms.get_rank(), losses, worst]))
"""

COLLECTIVES = """
import numpy as np
from minispore.communication import communicator, init
init()
c = communicator()
n, me, root = c.size, c.rank, c.size - 1
for dtype in ("float32", "float64", "int64", "float16", "bool"):
    x = [np.random.default_rng(r).integers(0, 3, (n * 2, 3)).astype(dtype) for r in range(n)]
    for op, f in (("sum", np.add), ("max", np.maximum), ("min", np.minimum), ("prod", np.multiply)):
        want = x[0]
        for other in x[1:]:
            want = f(want, other)
        assert (c.all_reduce(x[me], op).wait() == want).all(), (dtype, op)
        assert (c.reduce_scatter(x[me], op).wait() == want[me * 2:me * 2 + 2]).all()
    assert (c.all_gather(x[me]).wait() == np.concatenate(x)).all()
    assert (c.broadcast(x[me], root).wait() == x[root]).all()
    assert (c.all_to_all(x[me]).wait() == np.concatenate([s[me * 2:me * 2 + 2] for s in x])).all()
    total = c.reduce(x[me], root).wait()
    late, early = c.all_reduce(np.full(9, me)), c.barrier()
    early.wait()
    assert (late.wait() == n * (n - 1) // 2).all()
big = c.all_reduce(np.full(1 << 20, me, np.float32)).wait()        # larger than MPI sends without asking first
assert (big == n * (n - 1) / 2).all()
print("all right")
"""


SELECTION = """
import os
import numpy as np
os.environ["MINISPORE_ALGORITHM"] = "rabenseifner" if os.environ["RANK_ID"] == "0" else "tree"
os.environ["MINISPORE_NODE_SIZE"] = "2" if os.environ["RANK_ID"] == "0" else "1"
from minispore.communication import communicator, init, selection
from minispore.communication.algorithms import ALGORITHMS
init()
c = communicator()
assert not c.endpoint.record.events and c.nodes == ((0, 1), (2,)), c.nodes
assert (c.all_reduce(np.full(9, c.rank)).wait() == 3).all()
(call,) = c.endpoint.record.collectives()
assert call.algorithm == "rabenseifner", call
x = [np.random.default_rng(r).integers(0, 9, (30_000, 3)) for r in range(3)]
for name in sorted({name for by_name in ALGORITHMS.values() for name in by_name}):
    with selection.algorithm(name):
        handles = [c.all_reduce(x[c.rank]), c.all_gather(x[c.rank]), c.all_to_all(x[c.rank]), c.broadcast(x[c.rank], 1)]
        total, whole, swapped, one = [h.wait() for h in handles]
    assert (total == sum(x)).all() and (whole == np.concatenate(x)).all() and (one == x[1]).all(), name
    assert (swapped == np.concatenate([s[c.rank * 10_000:(c.rank + 1) * 10_000] for s in x])).all(), name
print("all right")
"""


def msrun(folder, n, code, **env):
    script = Path(folder, "program.py")
    script.write_text(code)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-m", "minispore.launch.msrun", f"--worker_num={n}", f"--log_dir={folder}", script],
                          capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path, **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("n", [1, 2, 4])
def test_20_steps_of_lenet_equal_mindspores(tmp_path, n):
    golden, _, _ = golden_lenet()
    lines = [line[line.index("["):] if n == 1 else line.split("] ", 1)[1] for line in msrun(tmp_path, n, LENET).splitlines()
             if "[[" in line or ", [" in line]
    ranks = sorted(map(json.loads, lines))
    assert len(ranks) == n
    np.testing.assert_allclose(np.mean([r[1] for r in ranks], 0), golden["loss_1w"], atol=1e-5, rtol=0)
    assert max(r[2] for r in ranks) <= 1e-6


def test_the_record_of_a_ring_all_reduce(tmp_path):
    """2·4·3 messages over 4 links, each rank sending 2·3/4 of the vector."""
    code = ("import numpy as np\nfrom minispore.communication import communicator, init\ninit()\n"
            "communicator().all_reduce(np.ones(1000, np.float32), name='gradients').wait()\n")
    msrun(tmp_path, 4, code, MINISPORE_RECORD=str(tmp_path), MINISPORE_ALGORITHM="ring")
    records = [Record.load(tmp_path / f"record_{r}.json") for r in range(4)]
    assert sum(len(r.messages()) for r in records) == 2 * 4 * 3
    assert set.union(*(r.links() for r in records)) == {(0, 1), (1, 2), (2, 3), (3, 0)}
    for r in records:
        assert sum(m.bytes for m in r.messages()) == 2 * 3 * 250 * 4
        (call,) = r.collectives()
        assert (call.op, call.algorithm, call.detail) == ("AllReduce", "ring", "gradients")
        assert (call.count, call.dtype) == (1000, "float32")
        assert 0 < call.begin <= call.end


WAYS = {"shared": {}, "messages": {"MINISPORE_ALGORITHM": "ring"}, "no shared memory": {"MINISPORE_SHARED_MEMORY": "0"}}
IN_SHORT = {(2, "no shared memory"), (3, "messages"), (5, "shared")}


@pytest.mark.parametrize(("n", "way"), [pytest.param(n, way, marks=() if (n, way) in IN_SHORT else pytest.mark.slow)
                                        for n in (2, 3, 5) for way in WAYS])
def test_every_collective(tmp_path, n, way):
    assert msrun(tmp_path, n, COLLECTIVES, **WAYS[way]).count("all right") == n


SHARED = """
import numpy as np
from minispore.communication import communicator, create_group, init
init()
world = communicator()
n, me = world.size, world.rank
create_group("back", list(range(n))[::-1])
for c in (world, communicator("back")):
    for dtype in ("float32", "float64", "int32", "int64", "float16", "int8"):
        for op, f in (("sum", np.add), ("max", np.maximum), ("min", np.minimum), ("prod", np.multiply)):
            for length in (0, 1, n - 1, 1000, 1 << 14, 300_007):
                x = [np.random.default_rng([r, length]).integers(0, 3, length).astype(dtype) for r in range(n)]
                want = x[0]
                for other in x[1:]:
                    want = f(want, other)
                # in the heap on all ranks, on some, on none; in place and not; some of it through a handle
                for mine in ((True, True), (me == 0, True), (me != 0, False), (False, False)):
                    a, b = (c.empty(length, dtype) if shared else np.empty(length, dtype) for shared in mine)
                    a[:] = x[me]
                    got = c.all_reduce_now(a, op, b) if me % 2 else c.all_reduce(a, op, b).wait()
                    assert got is b and (b == want).all() and (a == x[me]).all(), (dtype, op, length, mine)
                    assert (c.all_reduce_now(a, op, a) == want).all()

# Everything else, of lengths that take one meeting, several stripes, or none: results given and not, in the heap and not.
for c in (world, communicator("back")):
    me = c.rank
    for k in (0, 5, 30_011):
        x = [np.random.default_rng([r, k]).integers(0, 9, n * k).astype("float32") for r in range(n)]
        total, mine = np.sum(x, 0), slice(me * k, me * k + k)
        for near, there in ((True, True), (True, me == 1), (me == 0, True), (False, False)):
            a = c.empty(n * k, "float32") if near else np.empty(n * k, "float32")
            a[:] = x[me]
            def out(length):
                return c.empty(length, "float32") if there else np.empty(length, "float32")
            for root in (0, n - 1):
                assert (c.broadcast(a, root, out(n * k)).wait() == x[root]).all()
                got = c.reduce(a, root, "avg").wait()
                assert me != root or np.allclose(got, total / n, rtol=1e-6)
                got = c.gather(a, root).wait()
                assert (got is None) if me != root else (got == np.concatenate(x)).all()
                assert (c.scatter(a, root).wait() == x[root][mine]).all()
            assert (c.reduce_scatter(a, out=out(k)).wait() == total[mine]).all()
            assert (c.all_gather(a, out(n * n * k)).wait() == np.concatenate(x)).all()
            assert (c.all_to_all(a, out(n * k)).wait() == np.concatenate([y[mine] for y in x])).all()
            assert (a == x[me]).all()
            whole = out(n * n * k)                              # in place
            piece = whole[me * n * k:(me + 1) * n * k]
            piece[:] = a
            assert c.all_gather(piece, whole).wait() is whole and (whole == np.concatenate(x)).all()
            assert (c.reduce_scatter(a, out=a[mine]).wait() == total[mine]).all()
            assert (c.broadcast(piece, 1, piece).wait() == x[1]).all()
late = [world.all_reduce(np.full(5, k)) for k in range(4)] + [communicator("back").all_reduce(np.full(100_000, 1.0))]
assert [h.wait()[0] for h in late[::-1]] == [n, 3 * n, 2 * n, n, 0]
events = [e for e in world.endpoint.record.collectives() if e.op == "AllReduce"]
last = [e for e in events if e.group == "hccl_world_group"][-4:]
assert [e.sequence for e in last] == list(range(world.sequence - 3, world.sequence + 1))
assert all(e.algorithm == "shared" and 0 < e.begin <= e.end and e.bytes == 40 and e.dtype == "int64" for e in last)
print("all right")
"""


@pytest.mark.parametrize("n", [2, 3])
def test_arrays_that_others_reach_and_private_ones(tmp_path, n):
    assert msrun(tmp_path, n, SHARED).count("all right") == n


ODD = """
import ml_dtypes
import numpy as np
import minispore as ms
from minispore.communication import communicator, create_group, init
init()
c = communicator()
n, me = c.size, c.rank

def same(handle, want):
    got = np.asarray(handle.wait())
    assert np.array_equal(got.astype(float), np.asarray(want).astype(float), equal_nan=True), (got, want)

x = np.arange(12.0).reshape(3, 4)
same(c.all_reduce(np.asfortranarray(x)), n * x)
same(c.all_reduce(x[::2, ::3]), n * x[::2, ::3])
same(c.all_reduce(np.array(me + 1.0)), n * (n + 1) / 2)
read_only = np.ones(5)
read_only.setflags(write=False)
assert (c.all_reduce_now(read_only) == n).all() and (c.all_reduce_now(read_only) == n).all()
for dtype in (ml_dtypes.bfloat16, np.float16, np.uint64, np.int8, np.bool_, np.uint16):
    same(c.all_reduce(np.ones(7, dtype)), np.full(7, n).astype(dtype))
    same(c.all_gather(np.full(3, me, dtype)), np.repeat(np.arange(n), 3).astype(dtype))
many = np.array([2**53 + 1, -2**53 - 1, -7, 8] * 5000)
same(c.all_reduce(many, "avg").then(lambda got: got == many), np.ones(20_000))
nan = np.array([np.nan if me == 1 else me, me], float)
same(c.all_reduce(nan, "max"), [np.nan, n - 1])
same(c.all_reduce(nan, "min"), [np.nan, 0])
heap = c.endpoint.transport.node.heap
for number in range(1100):                          # more groups than there is room for at once: new ones, and the same again
    name = f"back{number}" if number % 2 else "back"
    create_group(name, list(range(n))[::-1])
    same(communicator(name).all_reduce(np.ones(3)), np.full(3, n))
    ms.destroy_group(name)
assert heap.used() < 4 << 20
groups = {"a": [0, 1], "b": [1, 2], "c": [0, 2]}    # they overlap; each rank is in two, and begins and waits in another order
mine = {name: ranks for name, ranks in groups.items() if me in ranks}
for name, ranks in mine.items():
    create_group(name, ranks)
late = [(communicator(name).all_reduce(np.full(50_000, me + 1.0)), sum(r + 1 for r in mine[name]))
        for name in (mine if me else list(mine)[::-1])]
world, sent = c.all_reduce(np.ones(200_000)), c.send(np.full(4, me), (me + 1) % n)
same(c.receive((4,), np.int64, (me - 1) % n), np.full(4, (me - 1) % n))
same(world, np.full(200_000, n))
for handle, want in late[::-1]:
    same(handle, np.full(50_000, want))
try:
    c.all_reduce(np.ones(3 if me else 4)).wait()
except ms.CollectiveError as error:
    assert "in different operations" in str(error)
else:
    raise AssertionError("nobody noticed")
same(c.all_reduce(np.ones(3)), np.full(3, n))       # who catches that can go on
print("all right")
"""


@pytest.mark.parametrize("n", [3, pytest.param(5, marks=pytest.mark.slow)])
def test_odd_arrays_and_groups(tmp_path, n):
    assert msrun(tmp_path, n, ODD).count("all right") == n


def test_memory_that_is_too_small_is_refused_by_all(tmp_path, monkeypatch):
    """Each rank hears what the others say; none goes on alone, and no file is left."""
    monkeypatch.setattr(segment, "FOLDER", str(tmp_path))
    said = "rank 1: no space"
    with pytest.raises(RuntimeError, match=r"2 ranks on this node need 2\.1 MB of shared memory .* has .* MB free \(rank 1: no "
                                           r"space\).*docker run --shm-size=1g.*MINISPORE_SHARED_MEMORY=0"):
        segment.join(0, [0, 1], "few", lambda mine: [mine, said], 1 << 20)
    with pytest.raises(RuntimeError, match=r"rank 0: .*(No space|too large)"):
        segment.join(0, [0, 1], "none", lambda mine: [mine, ""], 1 << 62)
    assert not list(tmp_path.iterdir())


OTHERS = ("c.all_reduce(x.astype('float32'))", "c.all_reduce(x[:3])", "c.all_reduce(x, 'max')", "c.all_gather(x)",
          "c.broadcast(x, 0)")
DIFFER_IN_SHORT = {(OTHERS[1], "ring"), (OTHERS[2], "shared")}      # tests/test_no_hang.py has more


@pytest.mark.parametrize(("other", "algorithm"), [
    pytest.param(other, how, marks=() if (other, how) in DIFFER_IN_SHORT else pytest.mark.slow)
    for other in OTHERS for how in ("shared", "ring")])
def test_ranks_in_different_operations_are_told(tmp_path, other, algorithm):
    script = tmp_path / "differ.py"
    script.write_text("import numpy as np\nfrom minispore.communication import communicator, init\ninit()\nc = communicator()\n"
                      f"x = np.ones(8)\n({other} if c.rank == 1 else c.all_reduce(x)).wait()\n")
    done = subprocess.run([sys.executable, "-m", "minispore.launch.msrun", "--worker_num=2", f"--log_dir={tmp_path}", script],
                          capture_output=True, text=True, timeout=60, env={**os.environ, "MINISPORE_ALGORITHM": algorithm})
    assert done.returncode != 0
    assert "op, dtype, count, root and algorithm must agree on all ranks" in done.stdout


def test_a_rank_that_reads_its_input_gets_nothing(tmp_path):
    assert msrun(tmp_path, 2, "import sys\nprint(repr(sys.stdin.read()))\n").count("''") == 2


LATE = """
import time
import numpy as np
from minispore.communication import communicator, init
init()
c = communicator()
if c.rank == 3:
    time.sleep(1.5)
got = c.broadcast(np.full(1 << 18, c.rank, np.float32), 0).wait()
assert (got == 0).all()
"""


def test_a_late_rank_keeps_others_waiting_though_some_have_ended(tmp_path):
    """In the tree rank 0 gives to 1 and 2 and ends, while 1 still waits for 3 to take its message, too large to go unasked."""
    msrun(tmp_path, 4, LATE)


def test_rank_0_chooses_algorithms_for_all(tmp_path):
    """The ranks' environments differ; then every algorithm, with messages of MPI."""
    assert msrun(tmp_path, 3, SELECTION).count("all right") == 3
