"""Programs with messages of their own in virtual time: all ranks alike, and each rank by itself."""
from contextvars import copy_context
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minispore as ms
from minispore import CollectiveError, Tensor, ops
from minispore.common.state import GRAPH_MODE, RankState, enter
from minispore.communication import create_group, get_rank, imagined
from minispore.launch.simulate import simulated
from minispore.parallel.cost import CLUSTERS, Link
from minispore.parallel.simulate import Simulation
from minispore.parallel.simulator.program import Seat, role_of
from minispore.parallel.simulator.timeline import BETWEEN, INSIDE, timeline

A100 = replace(CLUSTERS["a100"], node_size=4, inside=Link(1e-6, 1e9), between=Link(1e-5, 1e8))


def role(seat, fn, *shapes, cluster=A100):
    """What `fn`, called with tensors of these shapes, is on that rank."""
    def run():
        made = []

        def stand_in(program, layouts=None):
            made.append(Simulation(program, layouts))
            return made[-1]
        enter(RankState(seat.rank, seat.ranks, mode=GRAPH_MODE, stand_in=stand_in, world=imagined.world(seat.ranks, seat.rank)))
        ms.jit(fn)(*(Tensor(np.ones(shape, np.float32)) for shape in shapes))
        return role_of([p.scheduled for p in made], cluster, seat)
    return copy_context().run(run)


def everybody(n, fn, *shapes):
    return timeline([role(Seat(n, rank, own=True), fn, *shapes) for rank in range(n)], A100)


def shifted(n):
    def shift(x):
        ops.Send(3, (get_rank() + 1) % n)(x)
        return ops.Receive(3, (get_rank() - 1) % n, x.shape, x.dtype)()
    return shift


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 9), st.integers(1, 1000))
def test_a_shift_round_a_ring_is_one_message_whether_ranks_are_alike_or_not(n, width):
    alike, each = timeline([role(Seat(n), shifted(n), (width,))], A100), everybody(n, shifted(n), (width,))
    link = A100.between if n > 4 else A100.inside
    assert alike.seconds == pytest.approx(link.alpha + 4 * width / link.bandwidth) and alike.ranks == each.ranks == n
    assert alike.seconds == pytest.approx(each.seconds)
    assert sum(alike.bytes.values()) == pytest.approx(4 * width, abs=1)         # a receiver sends nothing
    for link in (INSIDE, BETWEEN):
        assert alike.bytes[link] == pytest.approx(each.bytes[link], abs=1)
    assert alike.peak == each.peak and {p.memory[-1][1] for p in (*alike.parts, *each.parts)} == {alike.parts[0].memory[0][1]}


def test_neighbours_exchange_at_once():
    def exchange(x):
        n, r = 4, get_rank()
        return ops.NeighborExchange([(r - 1) % n, (r + 1) % n], [(r - 1) % n, (r + 1) % n], [(500,)] * 2, [(500,)] * 2,
                                    ms.float32)((x, x))
    alike, each = timeline([role(Seat(4), exchange, (500,))], A100), everybody(4, exchange, (500,))
    assert alike.seconds == pytest.approx(each.seconds) == 2 * (1e-6 + 2000 / 1e9)      # two messages by one port
    assert alike.bytes == each.bytes == {INSIDE: 4000, BETWEEN: 0}


def test_a_chain_of_ranks_waits_for_one_another():
    def chain(x):
        x = ops.Receive(0, get_rank() - 1, (250,), ms.float32)() if get_rank() else x
        return ops.Send(0, get_rank() + 1)(x) if get_rank() < 5 else x
    line = everybody(6, chain, (250,))                      # four in a node, two in the next
    assert line.seconds == pytest.approx(4 * (1e-6 + 1000 / 1e9) + 1e-5 + 1000 / 1e8)
    assert {p.busy for p in line.parts} == {0.0} and line.bytes == {INSIDE: round(4 * 1000 / 6), BETWEEN: round(1000 / 6)}
    with pytest.raises(CollectiveError, match=r"never received message 0 \(in the world\) of each of 6 ranks"):
        timeline([role(Seat(6), chain, (250,))], A100)


def test_collectives_of_groups_meet_by_group_and_number():
    """Rank 0 comes late to its pair; the other pair doesn't wait."""
    def pairs(x, y):
        mine = get_rank() // 2
        create_group("pair", [2 * mine, 2 * mine + 1])
        for _ in range(9 if get_rank() == 0 else 0):
            y = ops.MatMul()(y, y)
        for _ in range(2):
            x = ops.AllReduce(group="pair")(x * y[0, 0])
        return x, y, ops.AllReduce()(x)
    line = everybody(4, pairs, (1000,), (64, 64))
    begins = {part.name: [s.begin for s in line.spans if s.role == part.name and s.kind == "AllReduce"] for part in line.parts}
    assert begins["rank 0"] == begins["rank 1"]
    assert begins["rank 2"] == begins["rank 3"] and begins["rank 2"][0] < begins["rank 0"][0] / 2
    assert len({b[2] for b in begins.values()}) == 1                             # all meet in the world's


def test_one_rank_sends_itself_nothing():
    line = timeline([role(Seat(1), shifted(1), (10,))], A100)
    assert line.bytes == {INSIDE: 0, BETWEEN: 0} and line.parts[0].name == "rank 0"


# ---- scripts -----------------------------------------------------------------------------------------

PIPELINE = """
import numpy as np
import minispore as ms
from minispore import Tensor, nn, ops
from minispore.communication import get_group_size, get_rank, init
init()
ms.set_auto_parallel_context(parallel_mode="hybrid_parallel")
rank, last = get_rank(), get_group_size() - 1
net = nn.SequentialCell(nn.Dense(64, 64), nn.ReLU())
if rank == FAILING:
    raise OSError("no data here")
def stage(x):
    x = ops.Receive(0, rank - 1, (32, 64), ms.float32)() if rank else x
    y = net(x)
    return ops.sum(ops.Send(0, rank + 1)(y) if rank < last else y)
optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
step = ms.value_and_grad(stage, None, optimizer.parameters)
while True:
    loss, grads = step(Tensor(np.ones((32, 64), np.float32)))
    optimizer(grads)
"""


def pipeline(folder, cards, failing=-1):
    (folder / "script.py").write_text(PIPELINE.replace("FAILING", str(failing)))
    step, error = simulated(str(folder / "script.py"), [], cards, A100)
    assert error is None
    return step


def test_a_pipelines_script_is_run_as_each_rank(tmp_path):
    step = pipeline(tmp_path, 4)
    alone = pipeline(tmp_path, 1)
    line, one = step.timeline, alone.timeline
    assert "note" not in alone.show() and alone.batch == 32             # alone it has nobody to join
    assert [p.name for p in line.parts] == [f"rank {r}" for r in range(4)]
    message = 1e-6 + 32 * 64 * 4 / 1e9
    assert 2 * one.seconds < line.seconds < 4 * one.seconds + 6 * message      # forward and backward, one behind the other
    assert line.bytes_by_collective["Send"][INSIDE] == round(6 * 32 * 64 * 4 / 4)
    assert "each rank's own; rank 0's: 2 programs" in step.show() and step.batch is None


def test_what_each_rank_has_to_be_run_for_is_told_where_it_cannot_be(tmp_path):
    with pytest.raises(CollectiveError, match="not all ranks can do what rank 0 does .*2 to 64 cards; give --cards accordingly"):
        pipeline(tmp_path, 65)
    with pytest.raises(CollectiveError, match="as rank 2 the script failed: OSError: no data here"):
        pipeline(tmp_path, 4, failing=2)
