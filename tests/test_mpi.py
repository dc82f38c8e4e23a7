"""MPI ranks: LeNet's golden values, the ring's record, every collective, random numbers of ranks."""
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from networks import golden_lenet

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


@pytest.mark.parametrize("env", [{}, {"MINISPORE_ALGORITHM": "ring"}, {"MINISPORE_SHARED_MEMORY": "0"}],
                         ids=["shared", "messages", "no shared memory"])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_every_collective(tmp_path, n, env):
    assert msrun(tmp_path, n, COLLECTIVES, **env).count("all right") == n


@pytest.mark.parametrize("algorithm", ["shared", "ring"])
@pytest.mark.parametrize("other", ["c.all_reduce(x.astype('float32'))", "c.all_reduce(x[:3])", "c.all_reduce(x, 'max')",
                                   "c.all_gather(x)", "c.broadcast(x, 0)"])
def test_ranks_in_different_operations_are_told(tmp_path, other, algorithm):
    script = tmp_path / "differ.py"
    script.write_text("import numpy as np\nfrom minispore.communication import communicator, init\ninit()\nc = communicator()\n"
                      f"x = np.ones(8)\n({other} if c.rank == 1 else c.all_reduce(x)).wait()\n")
    done = subprocess.run([sys.executable, "-m", "minispore.launch.msrun", "--worker_num=2", f"--log_dir={tmp_path}", script],
                          capture_output=True, text=True, timeout=60, env={**os.environ, "MINISPORE_ALGORITHM": algorithm})
    assert done.returncode != 0
    assert "op, dtype, count and root must agree on all ranks" in done.stdout


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
