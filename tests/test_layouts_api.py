"""What users of logical programs call: shard in its forms, AutoParallel, pieces outside programs, fusion, lazy values."""
import pickle

import numpy as np
import pytest

import minispore as ms
from minispore import Layout, Parameter, Tensor, nn, ops
from minispore.common.initializer import initializer
from minispore.communication import get_rank, init
from minispore.lab import run_ranks
from minispore.nn.utils import no_init_parameters
from minispore.parallel.auto_parallel import AutoParallel

X = np.arange(96, dtype=np.float64).reshape(8, 12) / 50


class Net(nn.Cell):
    """relu(x @ w1) @ w2, split over the hidden units if asked to."""

    def __init__(self, split=None):
        super().__init__()
        ms.set_seed(1)
        self.w1 = Parameter(initializer("normal", (12, 24), ms.float64), name="w1")
        self.w2 = Parameter(initializer("normal", (24, 6), ms.float64), name="w2")
        self.up, self.down = ops.MatMul(), ops.MatMul()
        if split:
            self.up.shard(((1, 1), (1, split)))
            self.down.shard(((1, split), (split, 1)))

    def construct(self, x):
        return self.down(ops.relu(self.up(x, self.w1)), self.w2)


def loss_of(net):
    return lambda x: ops.mean(ops.square(net(x) - 1))


def one_device():
    """(loss, gradients) of Net on one device."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net = Net()
    return ms.value_and_grad(loss_of(net), None, net.trainable_params())(Tensor(X))


def semi_auto(**settings):
    init()
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", **settings)


# ---- pieces outside programs ------------------------------------------------------------------------------

def test_gradients_and_parameters_keep_their_layout():
    loss, grads = one_device()

    def program():
        semi_auto()
        net = Net(4)
        mine, pieces = ms.value_and_grad(loss_of(net), None, net.trainable_params())(Tensor(X))
        assert net.w1.shape == (12, 6) == pieces[0].shape == pieces[0].asnumpy().shape and mine.layout is None
        assert pieces[0].layout.shape == (12, 24) and net.w1.layout.arrangement() == ([4], [-1, 0], [12, 6])
        assert net.parameter_layout_dict == {"w1": [[4], [-1, 0], [12, 6]], "w2": [[4], [0, -1], [6, 6]]}
        halves = [g * 0.5 for g in pieces]
        assert halves[0].shape == (12, 6) and str(halves[0].layout) == "(12, 24) as (-, ab) on 4 ranks"
        norm = ops.sqrt(sum(ops.sum(ops.square(g)) for g in pieces))
        clipped = ops.clip_by_global_norm(pieces, 0.01)
        return [mine.asnumpy(), norm.asnumpy(), *(t.full().asnumpy() for t in (*pieces, *halves, *clipped, net.w1))]
    results = run_ranks(program, 4)
    g = [t.asnumpy() for t in grads]
    norm = np.sqrt(sum((t ** 2).sum() for t in g))
    expected = [loss.asnumpy(), norm, *g, *(t / 2 for t in g), *(t * 0.01 / norm for t in g), Net().w1.asnumpy()]
    for mine in results:
        for a, b in zip(mine, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


FUNCTIONS = {
    "norm": lambda t: ops.norm(t), "norm method": lambda t: t.norm(), "var": lambda t: ops.var(t, 1), "std": lambda t: t.std(),
    "flatten": lambda t: ops.flatten(t, start_dim=0), "reshape": lambda t: t.reshape(-1), "mean": lambda t: t.mean(0),
    "logsumexp": lambda t: ops.logsumexp(t, 1), "clip": lambda t: ops.clip_by_value(t, -0.01, 0.01),
    "concat": lambda t: ops.concat((t, t), 1), "softmax": lambda t: ops.softmax(t), "split": lambda t: ops.split(t, 8, 1)[2],
    "index": lambda t: t[3, 1::2], "layer norm": lambda t: ops.L2Normalize(1)(t), "topk": lambda t: ops.topk(t, 5)[0],
    "cross entropy": lambda t: ops.cross_entropy(t, Tensor(np.arange(12, dtype=np.int32))), "transpose": lambda t: t.T,
    "plus a number": lambda t: 1 - t * 2, "with a whole tensor": lambda t: t * Tensor(np.arange(24.0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_pieces_mean_the_logical_tensor(name):
    def program():
        semi_auto()
        net = Net(4)
        net(Tensor(X))
        assert net.w1.layout is not None
        return FUNCTIONS[name](net.w1).full().asnumpy()
    for mine in run_ranks(program, 4):
        np.testing.assert_allclose(mine, FUNCTIONS[name](Tensor(Net().w1)).asnumpy(), rtol=1e-12, atol=1e-14)


def test_outside_the_mode_pieces_still_know_one_another():
    def program():
        semi_auto()
        net = Net(2)
        net(Tensor(X))
        ms.reset_auto_parallel_context()
        return float(ops.sum(net.w1)), net.w1.full().shape
    assert run_ranks(program, 2) == [(pytest.approx(float(Net().w1.asnumpy().sum())), (12, 24))] * 2


def test_an_optimizer_takes_pieces_of_gradients():
    """The gradient in one program, the step in another."""
    one_device()

    def program():
        semi_auto()
        net = Net(3)
        optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9, weight_decay=0.01)
        for _ in range(2):
            optimizer(ms.grad(loss_of(net), None, net.trainable_params())(Tensor(X)))
        assert optimizer.moments[0].shape == (12, 8)
        return net.w1.full().asnumpy()
    net = Net()
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9, weight_decay=0.01)
    for _ in range(2):
        optimizer(ms.grad(loss_of(net), None, net.trainable_params())(Tensor(X)))
    for mine in run_ranks(program, 3):
        np.testing.assert_allclose(mine, net.w1.asnumpy(), rtol=1e-12)


def test_set_data_takes_the_logical_tensor_or_the_piece():
    def program():
        semi_auto()
        net = Net(2)
        net(Tensor(X))
        whole = np.arange(288.0).reshape(12, 24)
        net.w1.set_data(Tensor(whole))
        np.testing.assert_array_equal(net.w1.asnumpy(), whole[:, get_rank() * 12:][:, :12])
        net.w1.set_data(Tensor(np.ones((12, 12))), slice_shape=True)
        with pytest.raises(ValueError, match=r"set_data got shape \(3, 3\)"):
            net.w1.set_data(Tensor(np.ones((3, 3))))
        return net.w1.full().asnumpy().sum()
    assert run_ranks(program, 2) == [288, 288]


def test_ranks_that_disagree_take_rank_0s_values_and_say_so():
    def program():
        semi_auto()
        net = Net(2)
        net.w2.set_data(Tensor(np.full((24, 6), float(get_rank()))))
        net(Tensor(X))
        return net.w2.full().asnumpy().max()
    with pytest.warns(UserWarning, match="parameter w2: the ranks gave different values.*rank 0's are taken"):
        assert run_ranks(program, 2) == [0, 0]


def test_inputs_that_differ_are_rank_0s_in_every_call():
    def program():
        semi_auto()
        net = Net(2)
        return [net(Tensor(X * (1 + get_rank()) + step)).asnumpy() for step in range(3)]
    with pytest.warns(UserWarning, match="input 0: the ranks gave different values"):
        results = run_ranks(program, 2)
    for mine in results:
        for step, out in enumerate(mine):
            np.testing.assert_allclose(out, Net()(Tensor(X + step)).asnumpy(), rtol=1e-12)


def test_copies_of_pieces_are_pieces():
    def program():
        semi_auto()
        net = Net(2)
        net(Tensor(X))
        return [t.full().shape for t in (Tensor(net.w1), net.w1.copy(), net.w1.clone(), net.w1.value())]
    assert run_ranks(program, 2) == [[(12, 24)] * 4] * 2


def test_what_is_made_of_pieces_alone_stays_in_pieces():
    def program():
        semi_auto()
        net = Net(2)
        net(Tensor(X))
        assert [(net.w1 == net.w1).shape, (net.w1 * 2).shape, ops.sum(net.w1, 1).shape] == [(12, 12), (12, 12), (12,)]
        rows = [row.full().asnumpy() for row in net.w2]
        with pytest.raises(TypeError, match="a rank's piece of a logical tensor .* can't be pickled"):
            pickle.dumps(net.w1)
        return np.stack(rows)
    for mine in run_ranks(program, 2):
        np.testing.assert_array_equal(mine, Net().w2.asnumpy())


# ---- shard in its forms -----------------------------------------------------------------------------------

LAYOUT = Layout((2, 2), ("dp", "mp"))


@pytest.mark.parametrize("how", ["cell", "cell with layouts", "function", "reshard", "plan"])
def test_forms_of_shard(how):
    expected = Net()(Tensor(X)).asnumpy()

    def program():
        semi_auto()
        net = Net()
        if how == "cell":
            assert net.shard(((2, 1),), ((2, 2),)) is net
        elif how == "cell with layouts":
            net.shard((LAYOUT("dp", "None"),), (LAYOUT("dp", "mp"),), {"w1": LAYOUT("None", "mp")})
        elif how == "plan":
            net.shard(((1, 1),), parameter_plan={"self.w1": (1, 4), "w2": (4, 1)})
        run = net
        if how == "function":
            run = ms.shard(lambda x: net(x) + 0, in_strategy=((4, 1),))
        if how == "reshard":
            run = ms.jit(lambda x: ops.reshard(net(ops.reshard(x, LAYOUT("dp", "mp"))), (2, 1)))
        return run(Tensor(X)).asnumpy(), net.w1.shape
    for mine, shape in run_ranks(program, 4):
        np.testing.assert_allclose(mine, expected, rtol=1e-12)
        assert shape == {"plan": (12, 6), "cell with layouts": (12, 12)}.get(how, (12, 24))


def test_shards_that_do_not_fit():
    net = Net().shard(((1, 1), (1, 1)))
    with pytest.raises(ValueError, match="in_strategy .* has 2 entries for 1 tensors"):
        net(Tensor(X))
    with pytest.raises(ValueError, match="is a function, which has no parameters"):
        ms.shard(lambda x: x, parameter_plan={"w": (1,)})
    with pytest.raises(ValueError, match=r"parameter w1 in parameter_plan.*does not divide 12"):
        ms.compile(Net().shard(parameter_plan={"w1": (5, 1)}), Tensor(X), device_num=5)


def test_layers_have_ops_to_shard():
    """Under MindSpore's names."""
    def network(split):
        ms.set_seed(2)
        net = nn.SequentialCell(nn.Embedding(16, 8, dtype=ms.float64), nn.Dense(8, 12, dtype=ms.float64), nn.ReLU(),
                                nn.Dense(12, 4, dtype=ms.float64), nn.Softmax())
        if split:
            net[0].gather.shard(((1, 2), (2, 1)))
            net[1].matmul.shard(((2, 1, 1), (2, 1)))
            net[1].bias_add.shard(((2, 1, 2), (2,)))
            net[2].relu.shard(((2, 1, 2),))
            net[3].matmul.shard(((2, 1, 2), (1, 2)))
            net[4].softmax.shard(((2, 2, 1),))
        return net
    ids = Tensor(np.arange(16, dtype=np.int32).reshape(4, 4))
    program = ms.compile(network(True), ids, device_num=4)
    assert {name: p.local_shape for name, p in program.parameters.items()} == {
        "0.embedding_table": (16, 4), "1.weight": (6, 8), "1.bias": (6,), "3.weight": (4, 6)}
    np.testing.assert_allclose(program.lockstep(ids).run()[0], network(False)(ids).asnumpy(), rtol=1e-12)


# ---- AutoParallel -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("level", ["level1", "level3"])
def test_auto_parallel_around_a_training_step(level):
    def train(wrap):
        net = Net(2 if wrap else None)
        optimizer = nn.Adam(net.trainable_params(), 0.01)
        grad_fn = ms.value_and_grad(loss_of(net), None, net.trainable_params())

        def step(x):
            loss, grads = grad_fn(x)
            optimizer(grads)
            return loss
        run = AutoParallel(step).hsdp(threshold=0, optimizer_level=level) if wrap else ms.jit(step)
        losses = [float(run(Tensor(X))) for _ in range(3)]
        return losses, net.w1.shape, optimizer.moment1[0].shape, net.w1.full().asnumpy()

    def program():
        init()
        return train(True)
    ms.set_context(mode=ms.GRAPH_MODE)
    losses, _, _, w1 = train(False)
    for mine, shape, state, weights in run_ranks(program, 4):
        np.testing.assert_allclose(mine, losses, rtol=1e-12)
        np.testing.assert_allclose(weights, w1, rtol=1e-12)
        assert state == (6, 12) and shape == ((6, 12) if level == "level3" else (12, 12))


def test_a_strategy_file_lays_parameters_out(tmp_path):
    def save():
        init()
        AutoParallel(Net(4)).save_param_strategy_file(f"{tmp_path}/s.json")(Tensor(X))

    def load():
        init()
        net = Net()
        out = AutoParallel(net).load_param_strategy_file(f"{tmp_path}/s.json")(Tensor(X))
        return net.w1.shape, net.w2.shape, out.asnumpy()
    run_ranks(save, 4)
    for n, shapes in ((4, ((12, 6), (6, 6))), (2, ((12, 24), (24, 6)))):
        for *mine, out in run_ranks(load, n):
            assert tuple(mine) == shapes
            np.testing.assert_allclose(out, Net()(Tensor(X)).asnumpy(), rtol=1e-12)


def test_auto_parallel_is_the_outermost():
    net = AutoParallel(Net())
    with pytest.raises(RuntimeError, match="put it around the outermost function"):
        ms.grad(lambda x: ops.sum(net(x)))(Tensor(X))
    assert ms.get_auto_parallel_context("parallel_mode") == "stand_alone"
    for wrong, error, text in ((lambda: AutoParallel(Net(), "auto"), ValueError, "must be one of semi_auto"),
                               (lambda: AutoParallel(3), TypeError, "give a Cell or a function"),
                               (lambda: net.hsdp(shard_size=0), ValueError, "shard_size 0"),
                               (lambda: net.hsdp(threshold=-1), ValueError, "threshold'\\]=-1 must be ≥ 0")):
        with pytest.raises(error, match=text):
            wrong()


# ---- programs without a cluster ---------------------------------------------------------------------------

def test_a_program_can_be_looked_at_and_stopped():
    net = Net(4)
    program = ms.compile(net, Tensor(X), device_num=8, global_rank=3)
    assert net.w1.layout is None and net.w1.shape == (12, 24)
    assert program.parameters["w1"].local_shape == (12, 6) and dict(program.collectives) == {"AllReduce": 1}
    assert program.sent_bytes == 2 * 8 * 6 * 3 // 4 * 8                 # a ring: 2·(n-1)/n of 8 · 6 doubles
    assert program.memory["parameters"] == (12 * 6 + 6 * 6) * 8
    for after in ("trace", "simplify", "complete", "partition", "local"):
        assert "w1" in program.show(after)
    assert "AllReduceOver" in program.show() and "sum over" in program.show("complete")
    with pytest.raises(ValueError, match="'fuse' is no pass"):
        program.show("fuse")
    lockstep = program.lockstep(Tensor(X))
    for step in lockstep:
        if "MatMul" in str(step):
            break
    assert [p.shape for p in lockstep.pieces(step.outs[0])] == [(8, 6)] * 8
    with pytest.raises(ValueError, match="global_rank=8 of device_num=8"):
        ms.compile(net, Tensor(X), device_num=8, global_rank=8)
    with pytest.raises(ValueError, match="unknown setting 'zero'"):
        ms.compile(net, Tensor(X), device_num=8, zero=True)


def test_a_program_for_more_devices_than_ranks():
    ms.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    with pytest.raises(RuntimeError, match="device_num=8 devices, the job has 1 ranks: start it with msrun --worker_num=8"):
        Net()(Tensor(X))


def test_partial_sums_of_16_bits_travel_as_float32():
    """On the way the sum is 60,000 + 5,536, which is no float16; in the end it is one."""
    rows = np.array([30000, 30000, 5536, -5536], np.float16)[:, None].repeat(2, 1)

    def total(x):
        return ops.sum(x, 0)
    program = ms.compile(total, Tensor(rows), device_num=4)
    assert program.collectives == {"AllReduce": 1}
    np.testing.assert_array_equal(program.lockstep(Tensor(rows)).run()[0], rows.astype(np.float32).sum(0))

    def on_ranks():
        semi_auto()
        return ms.jit(total)(Tensor(rows)).asnumpy()
    for mine in run_ranks(on_ranks, 4):
        np.testing.assert_array_equal(mine, [60000, 60000])


def test_an_index_outside_a_split_table_is_an_error():
    """Each rank has half of the table, and all the indices."""
    table, ids = Tensor(np.ones((6, 2))), Tensor(np.array([0, 5, 6, -7], np.int32))
    program = ms.compile(lambda t, i: ops.Gather().shard(((2, 1), (1,)))(t, i, 0), table, ids, device_num=2)
    with pytest.raises(IndexError, match=r"index 6 is outside axis 0 of size 6 \(shape \(6, 2\)\); use -6 … 5"):
        program.lockstep(table, ids).run()


# ---- fusion -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("settings", "messages"), [
    ({}, 1), ({"comm_fusion": {"allreduce": {"mode": "size", "config": 1}}}, 1), ({"all_reduce_fusion_config": [2, 4]}, 3),
    ({"comm_fusion": {"allreduce": {"mode": "index", "config": [1]}}}, 2), ("each alone", 7), ("two kinds", 2),
], ids=["auto", "size", "indices", "index mode", "each alone", "two kinds"])
def test_gradients_travel_in_buckets(settings, messages):
    net = nn.SequentialCell(*(nn.Dense(12, 12) for _ in range(3)))
    if settings == "each alone":
        net.set_comm_fusion(0)
    if settings == "two kinds":
        net[2].set_comm_fusion(2)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    x = Tensor(X.astype(np.float32))
    program = ms.compile(step, x, x, device_num=4, **(settings if isinstance(settings, dict) else {}))
    assert program.cut.collectives() == {"all_reduce": 7}               # 6 gradients, and the loss
    assert program.collectives["AllReduce"] == messages
    program.lockstep(x, x).run()


# ---- lazy values ------------------------------------------------------------------------------------------

def test_lazy_values_are_those_of_one_device():
    whole = Net().w1.asnumpy()

    def program():
        semi_auto()
        with no_init_parameters():
            net = Net(4)
            optimizer = nn.Adam(net.trainable_params())
        assert net.w1._pending and net.w1.shape == (12, 24) and optimizer.moment1[0]._pending
        net(Tensor(X))
        assert not net.w1._pending and net.w1.shape == (12, 6)
        return net.w1.full().asnumpy()
    for mine in run_ranks(program, 4):
        np.testing.assert_array_equal(mine, whole)


def test_lazy_values_come_when_asked_for():
    with no_init_parameters():
        net = Net()
    assert net.w1._pending and net.w1.dtype == ms.float64
    np.testing.assert_array_equal(net.w1.asnumpy(), Net().w1.asnumpy())
    with no_init_parameters():
        kept = Parameter(Tensor(np.ones(3)), name="kept")
    assert not kept._pending
