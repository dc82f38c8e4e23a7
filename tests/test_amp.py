"""Training wrappers, loss scale and mixed precision."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minispore as ms
from minispore import Parameter, Tensor, amp, nn, ops
from minispore.lab import run_ranks
from minispore.nn.wrap.grad_reducer import DistributedGradReducer

BOTH_MODES = pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
INF = float("inf")


class Weighted(nn.Cell):
    """sum(w · x); its gradient is x."""

    def __init__(self, dtype=np.float64, **kwargs):
        super().__init__()
        self.w = Parameter(np.ones(2, dtype), name="w", **kwargs)

    def construct(self, x):
        return ops.sum(self.w * x)


class Net(nn.Cell):
    """Two layers around a normalisation."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.flat, self.dense = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Dense(32, 3)

    def construct(self, x):
        return self.dense(self.flat(self.norm(ops.relu(self.conv(x)))))


# ---- wrappers ---------------------------------------------------------------------------------------------------------

@BOTH_MODES
def test_the_loss_of_a_half_network_is_float32(mode):
    ms.set_context(mode=mode)
    seen = []

    class Loss(nn.Cell):
        def construct(self, out, label):
            seen.extend([out.dtype, label.dtype])
            return ops.mean(ops.square(out - label))
    net = nn.Dense(2, 1).to_float(ms.float16)
    loss = nn.WithLossCell(net, Loss())(Tensor([[1.0, 2.0]]), Tensor(np.zeros((1, 1), np.float16)))
    assert seen == [ms.float32, ms.float32] and loss.dtype == ms.float32
    nn.WithLossCell(nn.Dense(2, 1, dtype=ms.float64), Loss())(Tensor(np.ones((1, 2))), Tensor([1]))
    assert seen[2:] == [ms.float64, ms.int64]


@BOTH_MODES
def test_evaluation(mode):
    ms.set_context(mode=mode)
    net = nn.Dense(2, 3).to_float(ms.float16)
    x, y = Tensor([[1.0, 2.0]]), Tensor([1])
    loss, outputs, label = nn.WithEvalCell(net, nn.CrossEntropyLoss(), add_cast_fp32=True)(x, y)
    assert outputs.dtype == ms.float32 and label.tolist() == [1]
    np.testing.assert_allclose(float(loss), float(nn.CrossEntropyLoss()(outputs, y)), rtol=1e-6)
    assert nn.WithEvalCell(net, nn.CrossEntropyLoss())(x, y)[1].dtype == ms.float16
    with pytest.raises(TypeError, match="add_cast_fp32 1 must be True or False"):
        nn.WithEvalCell(net, nn.CrossEntropyLoss(), 1)


@BOTH_MODES
def test_forward_value_and_grad(mode):
    ms.set_context(mode=mode)
    net = Weighted()
    x = Tensor(np.array([3.0, 5.0]))
    value, to_x = nn.ForwardValueAndGrad(net)(x)
    assert float(value) == 8 and to_x.tolist() == [1, 1]
    value, (to_w,) = nn.ForwardValueAndGrad(net, net.trainable_params(), get_by_list=True, sens_param=True)(x, Tensor(10.0))
    assert float(value) == 8 and to_w.tolist() == [30, 50]
    value, (to_xs, to_ws) = nn.ForwardValueAndGrad(net, [net.w], get_all=True, get_by_list=True)(x)
    assert to_xs[0].tolist() == [1, 1] and to_ws[0].tolist() == [3, 5]
    with pytest.raises(ValueError, match="get_by_list=True, but no weights"):
        nn.ForwardValueAndGrad(net, get_by_list=True)


@BOTH_MODES
def test_parameter_update_and_sens(mode):
    ms.set_context(mode=mode)
    net = Weighted()
    assert nn.ParameterUpdate(net.w)(Tensor(np.array([4.0, 5.0]))).tolist() == net.w.tolist() == [4, 5]
    with pytest.raises(TypeError, match="param is a Tensor"):
        nn.ParameterUpdate(Tensor(1.0))
    step = nn.TrainOneStepCell(net, nn.SGD([net.w], 1.0), sens=2.0)
    x = Tensor(np.ones(2))
    assert float(step(x)) == 9 and net.w.tolist() == [2, 3]
    step.set_sens(Tensor(np.array(1.0)))
    assert float(step(x)) == 5 and net.w.tolist() == [1, 2]
    assert step.grad_reducer([1]) == (1,)


@BOTH_MODES
def test_a_training_step_of_ones_own(mode):
    """With self.grad and sens, as MindSpore's scripts write it."""
    class Mine(nn.TrainOneStepCell):
        def construct(self, *inputs):
            loss = self.network(*inputs)
            grads = self.grad(self.network, self.weights)(*inputs, ops.ones_like(loss) * 3.0)
            self.optimizer(self.grad_reducer(grads))
            return loss
    ms.set_context(mode=mode)
    net = Weighted()
    assert float(Mine(net, nn.SGD([net.w], 1.0))(Tensor(np.array([1.0, 2.0])))) == 3
    assert net.w.tolist() == [-2, -5]


# ---- loss scale -------------------------------------------------------------------------------------------------------

OPTIMIZERS = {
    "SGD": lambda p: nn.SGD(p, [0.5, 0.25], 0.9, dampening=0.1),
    "Momentum": lambda p: nn.Momentum(p, nn.WarmUpLR(0.5, 4), 0.9, weight_decay=0.1),
    "Adam": lambda p: nn.Adam(p, 0.1, use_amsgrad=True),
    "AdamWeightDecay": lambda p: nn.AdamWeightDecay(p, 0.1, weight_decay=0.1),
    "Lamb": lambda p: nn.Lamb(p, 0.1),
    "AdaMax": lambda p: nn.AdaMax(p, 0.1),
    "Adagrad": lambda p: nn.Adagrad(p),
    "ProximalAdagrad": lambda p: nn.ProximalAdagrad(p),
    "FTRL": lambda p: nn.FTRL(p),
    "Adadelta": lambda p: nn.Adadelta(p),
    "RMSProp": lambda p: nn.RMSProp(p, 0.1, centered=True),
    "Rprop": lambda p: nn.Rprop(p),
}


@BOTH_MODES
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_after_an_overflow_nothing_has_changed(name, mode):
    """Three good steps with one bad in between leave what three good steps leave; the scale itself halves and stays."""
    ms.set_context(mode=mode)
    good, bad = [np.array([0.5, -1.0]), np.array([1.5, 2.0]), np.array([-1.0, 0.25])], np.array([1.0, INF])
    plain, net = Weighted(), Weighted()
    optimizers = [OPTIMIZERS[name]([n.w]) for n in (plain, net)]
    step = nn.TrainOneStepCell(plain, optimizers[0])
    scaled = nn.TrainOneStepWithLossScaleCell(net, optimizers[1], nn.DynamicLossScaleUpdateCell(8, 2, 1000))
    for i, x in enumerate(good):
        loss = step(Tensor(x))
        if i == 2:
            kept = {k: v.asnumpy() for k, v in optimizers[1].parameters_dict().items()}
            for _ in range(2):
                loss_, overflow, scale = scaled(Tensor(bad))
                assert bool(overflow) and not np.isfinite(float(loss_))
            assert scale.item() == 4 and scaled.scale_sense.item() == 2
            for k, v in optimizers[1].parameters_dict().items():
                np.testing.assert_array_equal(v.asnumpy(), kept[k], err_msg=k)
        out, overflow, scale = scaled(Tensor(x))
        assert float(out) == float(loss) and not bool(overflow) and overflow.dtype == ms.bool_
    for a, b in zip(*(o.parameters_dict().items() for o in optimizers), strict=True):
        assert a[0] == b[0]
        np.testing.assert_array_equal(a[1].asnumpy(), b[1].asnumpy(), err_msg=a[0])       # powers of 2: no rounding
    assert int(optimizers[1].global_step.asnumpy()[0]) == 3


@BOTH_MODES
def test_the_scale_shrinks_until_gradients_fit_and_grows_again(mode):
    ms.set_context(mode=mode)
    net = Weighted(np.float32)
    step = nn.TrainOneStepWithLossScaleCell(net, nn.SGD([net.w], 1.0), nn.DynamicLossScaleUpdateCell(2.0 ** 30, 2, 3))
    x, seen = Tensor(np.array([1e30, 0], np.float32)), []       # 1e30 · 2^28 is below float32's end, 1e30 · 2^29 isn't
    for _ in range(8):
        _, overflow, scale = step(x)
        seen.append((bool(overflow), int(np.log2(scale.item()))))
    assert seen == [(True, 30), (True, 29), (False, 28), (False, 28), (False, 28), (True, 29), (False, 28), (False, 28)]


def test_the_scale_stays_finite():
    """Half of infinity is infinity, so it would never come back."""
    scale, update = Parameter(Tensor(2.0 ** 127), name="scale"), nn.DynamicLossScaleUpdateCell(2.0 ** 127, 2, 1)
    for _ in range(2):
        update(scale, Tensor(False))
        assert scale.item() == 2.0 ** 127


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 4), st.sampled_from([2, 4]))
def test_manager_and_cell_agree(overflows, window, factor):
    manager = amp.DynamicLossScaleManager(16, factor, window)
    cell, scale = manager.get_update_cell(), Parameter(Tensor(16.0), name="scale")
    good, expected = 0, 16.0
    for overflow in overflows:
        manager.update_loss_scale(overflow)
        assert bool(cell(scale, Tensor(overflow))) == overflow
        good = 0 if overflow else good + 1
        expected = max(expected / factor, 1) if overflow else expected * (factor if good == window else 1)
        good %= window
        assert manager.get_loss_scale() == scale.item() == expected
    assert manager.get_drop_overflow_update()


@BOTH_MODES
def test_fixed_and_given_scales(mode):
    ms.set_context(mode=mode)
    net = Weighted(np.float32)
    step = nn.TrainOneStepWithLossScaleCell(net, nn.SGD([net.w], 1.0), nn.FixedLossScaleUpdateCell(64))
    _, overflow, scale = step(Tensor([INF, 1.0]))
    assert bool(overflow) and scale.item() == 64 == step.scale_sense.item() and net.w.tolist() == [1, 1]
    given_scale = nn.TrainOneStepWithLossScaleCell(net, nn.SGD([net.w], 1.0), Tensor([1024], ms.float32))
    assert given_scale(Tensor([1.0, 1.0]))[2].tolist() == [1024]
    given_scale.set_sense_scale(Tensor([2.0]))
    assert given_scale(Tensor([1.0, 1.0]))[2].tolist() == [2] and net.w.tolist() == [-1, -1]


@BOTH_MODES
def test_a_scaled_step_of_ones_own(mode):
    class Mine(nn.TrainOneStepWithLossScaleCell):
        def construct(self, *inputs):
            loss = self.network(*inputs)
            status, scaling_sens = self.start_overflow_check(loss, self.scale_sense)
            grads = self.grad(self.network, self.weights)(*inputs, ops.ones_like(loss) * ops.cast(scaling_sens, loss.dtype))
            grads = self.grad_reducer([g / scaling_sens for g in grads])
            cond = self.get_overflow_status(status, grads)
            self.optimize_unless(self.process_loss_scale(cond), grads)
            return loss, cond, scaling_sens
    ms.set_context(mode=mode)
    net = Weighted(np.float32)
    step = Mine(net, nn.SGD([net.w], 1.0), nn.DynamicLossScaleUpdateCell(8, 2, 100))
    assert [bool(step(Tensor([x, 2.0]))[1]) for x in (1.0, float("nan"), 1.0)] == [False, True, False]
    assert net.w.tolist() == [-1, -3] and step.scale_sense.item() == 4


@BOTH_MODES
@pytest.mark.parametrize("alone", [False, True])
def test_all_ranks_leave_out_the_step_in_which_one_overflows(alone, mode):
    """alone: a parameter whose gradient isn't reduced, so the others can't see its infinity in theirs."""
    def program():
        ms.init()
        ms.set_context(mode=mode)
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        net = Weighted(layerwise_parallel=alone)
        optimizer = nn.Adam([net.w], 0.1)
        step = nn.TrainOneStepWithLossScaleCell(net, optimizer, nn.DynamicLossScaleUpdateCell(8, 2, 3))
        seen = []
        for i in range(6):
            x = np.array([1.0, INF if (i, ms.get_rank()) == (1, 2) else 1.0])
            _, overflow, scale = step(Tensor(x))
            seen.append((bool(overflow), scale.item(), net.w.asnumpy().tolist(), optimizer.moment1[0].asnumpy().tolist(),
                         optimizer.global_step.asnumpy().item()))
        return seen
    ranks = run_ranks(program, 4)
    assert all(r == ranks[0] for r in ranks)
    overflows, scales, weights, moments, steps = zip(*ranks[0], strict=True)
    assert overflows == (False, True, False, False, False, False) and scales == (8, 8, 4, 4, 4, 8)
    assert weights[1] == weights[0] != weights[2] and moments[1] == moments[0] and steps == (1, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_gradients_travel_as_float32(dtype, wide):
    def program():
        ms.init()
        ms.set_auto_parallel_context(gradients_mean=True, gradient_fp32_sync=wide)
        p = Parameter(Tensor(np.zeros(2), getattr(ms, dtype)), name="p")
        me = ms.get_rank()
        grads = (Tensor(np.array([40000.0, 1.0 if me == 0 else 2.0 ** -12]), p.dtype),)
        (g,) = DistributedGradReducer([p])(grads)
        assert g.dtype == p.dtype
        return g.astype(ms.float32).asnumpy()
    for big, small in run_ranks(program, 4):
        if wide or dtype == "bfloat16":
            np.testing.assert_allclose(big, 40000, rtol=1e-2)
        else:
            assert big == INF           # 4 · 40000 is more than float16 has
        assert abs(small - (1 + 3 * 2.0 ** -12) / 4) < 2e-3


# ---- functional training ----------------------------------------------------------------------------------------------

@BOTH_MODES
def test_all_finite(mode):
    ms.set_context(mode=mode)
    finite = ms.jit(amp.all_finite) if mode == ms.GRAPH_MODE else amp.all_finite
    good = (Tensor([1.0, 2.0]), [Tensor(np.array(65504, np.float16))], Tensor([3]))
    out = finite(good)
    assert bool(out) and out.dtype == ms.bool_ and out.shape == ()
    for bad in (INF, -INF, float("nan")):
        assert not bool(finite((*good, Tensor(np.array([0.0, bad]))))) and not bool(finite(Tensor([bad])))
    assert bool(amp.all_finite(Tensor([1])))


@BOTH_MODES
def test_scalers(mode):
    ms.set_context(mode=mode)
    scaler = amp.DynamicLossScaler(2 ** 10, 2, 2)
    half = Tensor(np.array([2.0 ** -10], np.float16))
    assert scaler.scale(half).dtype == ms.float16 and scaler.scale((half, half))[1].tolist() == [1]
    assert scaler.unscale(scaler.scale(half)).tolist() == half.tolist()
    scales = []
    for finite in (True, True, True, False, True, True, False, False):
        assert scaler.adjust(Tensor(finite))
        scales.append(int(scaler.scale_value.item()))
    assert scales == [1024, 2048, 2048, 1024, 1024, 2048, 1024, 512]
    scaler.scale_value.set_data(Tensor(2.0 ** 127))
    scaler.adjust(Tensor(True)), scaler.adjust(Tensor(True))
    assert scaler.scale_value.item() == 2.0 ** 127              # twice that isn't a float32 any more
    static = amp.StaticLossScaler(4)
    assert not static.adjust(Tensor(False)) and static.scale(Tensor(2.0)).item() == 8


def test_a_functional_training_step_with_a_scaler():
    net = Weighted(np.float32)
    optimizer, scaler = nn.SGD([net.w], 1.0), amp.DynamicLossScaler(2.0 ** 30, 2, 1000)
    step = ms.value_and_grad(lambda x: scaler.scale(net(x)), None, optimizer.parameters)
    done = 0
    for _ in range(4):
        _, grads = step(Tensor(np.array([1e30, 0], np.float32)))
        grads = scaler.unscale(grads)
        if amp.all_finite(grads):
            optimizer(grads)
            done += 1
        scaler.adjust(amp.all_finite(grads))
    assert done == 2 and scaler.scale_value.item() == 2.0 ** 28


# ---- mixed precision --------------------------------------------------------------------------------------------------

F16, F32 = ms.float16, ms.float32
LEVELS = {      # what conv, norm, dense and the whole network give
    "O0": (F32, F32, F32, F32), "O1": (F16, F32, F16, F32), "O2": (F16, F32, F16, F32), "O3": (F16, F16, F16, F32),
    "auto": (F16, F32, F16, F16),
}


@BOTH_MODES
@pytest.mark.parametrize("level", LEVELS)
def test_levels(level, mode):
    ms.set_context(mode=mode)
    net, seen = Net().set_train(), {}
    for name in ("conv", "norm", "dense"):
        net.get_sub_cell(name).register_forward_hook(lambda cell, args, out, n=name: seen.update({n: out.dtype}))
    x = Tensor(np.random.default_rng(0).normal(size=(2, 1, 4, 4)).astype(np.float32))
    exact = net(x)
    assert amp.auto_mixed_precision(net, level) is net
    out = net(x)
    assert (*seen.values(), out.dtype) == LEVELS[level]
    np.testing.assert_allclose(out.asnumpy(), exact.asnumpy(), rtol=2e-2, atol=5e-3)
    assert (out.asnumpy() != exact.asnumpy()).any() == (level != "O0")
    grads = ms.grad(lambda x: ops.sum(net(x)), None, net.trainable_params())(x)
    assert {t.dtype for t in (*net.get_parameters(), *grads)} == {F32}


def test_lists_and_custom_levels():
    assert nn.Dense in amp.get_white_list() and nn.LayerNorm in amp.get_black_list()
    x = Tensor(np.ones((2, 1, 4, 4), np.float32))
    seen = []
    net = Net()
    net.conv.register_forward_hook(lambda cell, args, out: seen.append(out.dtype))
    net.dense.register_forward_hook(lambda cell, args, out: seen.append(out.dtype))
    amp.custom_mixed_precision(net, white_list=[nn.Dense])(x)
    assert seen == [F32, F16]
    amp.custom_mixed_precision(net, black_list=[nn.Dense])(x)
    assert seen[2:] == [F16, F32]


@BOTH_MODES
@pytest.mark.parametrize("level", ["O0", "O2", "O3"])
def test_training_at_a_level(level, mode):
    ms.set_context(mode=mode)
    rng = np.random.default_rng(1)
    x, y = Tensor(rng.normal(size=(16, 1, 4, 4)).astype(np.float32)), Tensor(rng.integers(0, 3, 16).astype(np.int32))
    net = Net()
    step = amp.build_train_network(net, nn.Momentum(net.trainable_params(), 0.05, 0.9), nn.CrossEntropyLoss(), level)
    assert step.training and isinstance(step, nn.TrainOneStepWithLossScaleCell) == (level == "O2")
    losses = []
    for _ in range(60):
        out = step(x, y)
        losses.append(float(out[0] if level == "O2" else out))
    assert losses[-1] < 0.5 * losses[0]
    assert all(p.dtype == F32 for p in net.get_parameters())
    if level == "O2":       # from 2^24 down to what 16 bits can take
        assert 1 < step.scale_sense.item() < 2 ** 24 and step.optimizer.global_step.asnumpy()[0] < 60


class Many(nn.Cell):
    """Layers of all kinds."""

    def __init__(self):
        super().__init__()
        self.image = nn.SequentialCell(nn.Conv2d(1, 4, 3, has_bias=True), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.GELU(),
                                       nn.MaxPool2d(2, 2), nn.AvgPool2d(2, 2), nn.Flatten())
        self.words, self.mix = nn.Embedding(10, 16), nn.TransformerEncoderLayer(16, 2, 32)
        self.out = nn.SequentialCell(nn.LayerNorm((16,)), nn.Dropout(p=0.1), nn.Dense(16, 16, activation="relu"),
                                     nn.BatchNorm1d(16), nn.Dense(16, 3))
        self.loss = nn.CrossEntropyLoss().to_float(ms.float32)

    def construct(self, x, words, label):
        return self.loss(self.out(self.image(x) + ops.mean(self.mix(self.words(words)), 1)), label)


@pytest.mark.parametrize("dtype", [ms.float16, ms.bfloat16], ids=str)
@pytest.mark.parametrize("level", ["O1", "O2", "O3", "auto"])
def test_all_kinds_of_layers_train_at_all_levels_alike_in_both_modes(level, dtype):
    rng = np.random.default_rng(0)
    batch = [Tensor(rng.normal(size=(8, 1, 8, 8)).astype(np.float32)), Tensor(rng.integers(0, 10, (8, 5))),
             Tensor(rng.integers(0, 3, 8).astype(np.int32))]
    losses = {}
    for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
        ms.set_context(mode=mode)
        ms.set_seed(1)
        net = Many()
        amp.auto_mixed_precision(net, level, dtype)
        net.loss.to_float(ms.float32)
        step = amp.build_train_network(net, nn.Adam(net.trainable_params(), 0.01),
                                       loss_scale_manager=amp.FixedLossScaleManager(2.0 ** 10))
        losses[mode] = [float(step(*batch)[0]) for _ in range(20)]
        assert {p.dtype for p in net.get_parameters()} == {F32}
    assert losses[ms.GRAPH_MODE] == losses[ms.PYNATIVE_MODE]
    assert losses[mode][-1] < 0.4 * losses[mode][0]


def test_build_train_network_with_settings():
    net = Net()
    seen = []
    net.norm.register_forward_hook(lambda cell, args, out: seen.append(out.dtype))
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    step = amp.build_train_network(net, optimizer, nn.CrossEntropyLoss(), "O2", keep_batchnorm_fp32=False,
                                   loss_scale_manager=amp.FixedLossScaleManager(128, drop_overflow_update=False))
    assert type(step) is nn.TrainOneStepCell and step.sens == 128
    step(Tensor(np.ones((1, 1, 4, 4), np.float32)), Tensor([1]))
    assert seen == [F16]
    plain = amp.build_train_network(Net(), optimizer, None, "O0", loss_scale_manager=amp.FixedLossScaleManager(64))
    assert plain.scale_sense.item() == 64


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda net: amp.auto_mixed_precision(net, "O4"), ValueError, "amp_level 'O4' must be one of O0, O1, O2, O3, auto"),
    (lambda net: amp.auto_mixed_precision(3, "O1"), TypeError, "network is a int"),
    (lambda net: amp.auto_mixed_precision(net, "O1", ms.float32), ValueError, "dtype float32 must be a float of 16 bits"),
    (lambda net: amp.custom_mixed_precision(net), ValueError, "give either white_list or black_list"),
    (lambda net: amp.custom_mixed_precision(net, white_list=["Dense"]), TypeError, "'Dense' is not a class of cells"),
    (lambda net: amp.build_train_network(net, 3), TypeError, "optimizer is a int"),
    (lambda net: amp.build_train_network(net, net, boost_level="O1"), ValueError, "boost_level='O1' isn't there"),
    (lambda net: amp.build_train_network(net, net, fast=True), ValueError, "fast isn't there"),
    (lambda net: amp.FixedLossScaleManager(0.5), ValueError, "loss_scale 0.5 must be a number ≥ 1"),
    (lambda net: amp.DynamicLossScaleManager(0.5), ValueError, "loss_scale_value 0.5 must be a number ≥ 1"),
    (lambda net: amp.DynamicLossScaler(1, 2, 0), ValueError, "DynamicLossScaler: scale_window 0 must be"),
    (lambda net: amp.StaticLossScaler("a"), ValueError, "StaticLossScaler: scale_value 'a' must be"),
    (lambda net: nn.FixedLossScaleUpdateCell(0), ValueError, "loss_scale_value 0 must be a number > 0"),
    (lambda net: nn.TrainOneStepWithLossScaleCell(net, nn.SGD([net.w]), 128), TypeError, "scale_sense is a int"),
    (lambda net: nn.TrainOneStepWithLossScaleCell(net, nn.SGD([net.w]), Tensor([1, 2])), ValueError, r"has shape \(2,\)"),
    (lambda net: nn.TrainOneStepWithLossScaleCell(net, nn.SGD([net.w]), Tensor(1.0)).set_sense_scale(2), TypeError, "is a int"),
])
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make(Weighted())
