"""E13: what an MLP over p ranks must do."""
from math import prod

import numpy as np

import minispore as ms
from minispore import Tensor, nn, ops
from minispore.communication import communicator, get_record, init
from minispore.grade import plain, points
from minispore.lab import run_ranks

TAKEN_AWAY = []
ROWS, D, H = 6, 8, 16
RANKS = (1, 2, 4)


class MLP(nn.Cell):
    """The network for one device."""

    def __init__(self, d, h):
        super().__init__()
        self.up, self.down = nn.Dense(d, h, has_bias=False), nn.Dense(h, d, has_bias=False)

    def construct(self, x):
        return self.down(ops.relu(self.up(x)))


# ---- by strategies ------------------------------------------------------------------------------------

def sharded(answer, p):
    """MLP with the answer's strategies."""
    got = answer.strategies(p)
    assert type(got) is dict and set(got) == {"up", "down"}, (
        f"strategies({p}) should be a dict of 'up' and 'down', it is {got!r:.100}")
    ms.set_seed(1)
    net = MLP(D, H)
    for name, strategy in got.items():
        getattr(net, name).matmul.shard(strategy)
    return net


def compiled(answer, p, backward=False):
    """The program of rank 0 of p: forward, or forward and backward to x and the weights."""
    net, x = sharded(answer, p), Tensor(np.ones((ROWS, D), np.float32))
    run = ms.value_and_grad(lambda x: ops.mean(ops.square(net(x))), 0, net.trainable_params()) if backward else net
    return ms.compile(run, x, device_num=p)


@points(2, hint=2)
def test_strategies_split_both_weights(answer):
    whole = 2 * D * H * 4
    for p in RANKS:
        program = compiled(answer, p)
        held = program.memory["parameters"]
        assert held == whole // p, f"on {p} ranks each should hold {whole // p} of the {whole} bytes of weights, it holds {held}"
        assert not program.cut.plan.layout[program.logical.inputs[0]].axes, f"on {p} ranks x should stay whole"


@points(2, hint=1)
def test_compiles_to_one_all_reduce_each_way(answer):
    for p in RANKS[1:]:
        for backward, ways in ((False, "forward"), (True, "forward and backward")):
            program = compiled(answer, p, backward)
            got, expected = dict(program.collectives), {"AllReduce": 1 + backward}
            assert got == expected, f"on {p} ranks the program {ways} should have the collectives {expected}, it has {got}"
            sent, least = program.sent_bytes, (1 + backward) * 2 * ROWS * D * 4 * (p - 1) // p
            assert sent == least, f"on {p} ranks a rank should send {least} bytes {ways}, it sends {sent}"


# ---- by hand ------------------------------------------------------------------------------------------

def data():
    rng = np.random.default_rng(13)
    return (rng.normal(size=shape) for shape in ((ROWS, D), (D, H), (H, D), (ROWS, D)))


def one_device():
    """y, dx, dw1, dw2 of one device."""
    x, w1, w2, dy = data()
    hidden = np.maximum(x @ w1, 0)
    dhidden = (dy @ w2.T) * (hidden > 0)
    return hidden @ w2, dhidden @ w1.T, x.T @ dhidden, hidden.T @ dy


def on_ranks(answer, p, backward=True):
    """For each rank: its pieces, y (and dx, dc1, dc2), and the record's calls forward and backward."""
    def program():
        init()
        x, w1, w2, dy = data()
        comm = communicator()
        pieces = answer.cut(w1, w2, comm.rank, p)
        assert type(pieces) in (tuple, list) and len(pieces) == 2, f"cut should return two pieces, it returned {pieces!r:.80}"
        c1, c2 = (plain(c, np.float64) for c in pieces)
        got = answer.forward(comm, x, c1, c2)
        assert type(got) is tuple and len(got) == 2, f"forward should return (y, kept), it returned a {type(got).__name__}"
        y, kept = got
        first = calls()
        grads = answer.backward(comm, dy, kept, c1, c2) if backward else ()
        return (c1, c2), [plain(a, np.float64) for a in (y, *grads)], first, calls()[len(first):]
    return run_ranks(program, p)


def calls():
    return [(e.op, e.bytes) for e in get_record().collectives()]


def close(p, rank, name, got, expected):
    at_rank = f"on {p} ranks, rank {rank}"
    assert got.shape == expected.shape, f"{at_rank}: {name} should have shape {expected.shape}, it has {got.shape}"
    at = np.unravel_index(np.argmax(np.abs(got - expected)), got.shape)
    assert np.allclose(got, expected, rtol=1e-10, atol=1e-10), (
        f"{at_rank}: {name}[{', '.join(map(str, at))}] should be {expected[at]:.6f}, it is {got[at]:.6f}")


@points(1, hint=3)
def test_each_rank_holds_its_part_of_both_weights(answer):
    _, w1, w2, _ = data()
    for p in (1, 2, 4, 8):
        for name, i, w in (("w1", 0, w1), ("w2", 1, w2)):
            pieces = [plain(answer.cut(w1, w2, rank, p)[i]) for rank in range(p)]
            for rank, piece in enumerate(pieces):
                part = w.size // p
                assert piece.size == part, (f"on {p} ranks, rank {rank} should hold {part} of the {w.size} values of {name}, it "
                                            f"holds {piece.size}")
            values = np.sort(np.concatenate([piece.reshape(-1) for piece in pieces]))
            assert np.array_equal(values, np.sort(w.reshape(-1))), f"on {p} ranks, the pieces of {name} together are not {name}"


@points(2, hint=4)
def test_forward_equals_one_device(answer):
    y = one_device()[0]
    for p in RANKS:
        for rank, (_, outs, *_) in enumerate(on_ranks(answer, p, backward=False)):
            close(p, rank, "y", outs[0], y)


@points(2, hint=5)
def test_backward_equals_one_device(answer):
    _, dx, dw1, dw2 = one_device()
    for p in RANKS:
        for rank, (_, outs, *_) in enumerate(on_ranks(answer, p)):
            assert len(outs) == 4, f"backward should return (dx, dc1, dc2), it returned {len(outs) - 1} arrays"
            close(p, rank, "dx", outs[1], dx)
            for name, got, whole in zip(("dc1", "dc2"), outs[2:], answer.cut(dw1, dw2, rank, p), strict=True):
                close(p, rank, f"{name} (the same piece of the weight's gradient)", got, plain(whole, np.float64))


@points(1, hint=4)
def test_sends_one_all_reduce_each_way(answer):
    for p in RANKS[1:]:
        for rank, (*_, first, second) in enumerate(on_ranks(answer, p)):
            for way, got in (("forward", first), ("backward", second)):
                expected = [("AllReduce", prod((ROWS, D)) * 8)]
                assert got == expected, (f"on {p} ranks, rank {rank} {way}: the record should show the calls {expected} (op, "
                                         f"bytes), it shows {got}")
