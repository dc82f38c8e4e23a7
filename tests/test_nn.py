"""Cells: names, repr, containers, layers' messages; losses; Model, callbacks and metrics."""
import copy
import pickle

import numpy as np
import pytest

import minispore as ms
import minispore.dataset as ds
from minispore import Model, Parameter, ParameterTuple, Tensor, nn, ops
from minispore.train import Accuracy, Callback, LossMonitor, TimeMonitor


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, has_bias=True)
        self.scale = Parameter(Tensor([1.0]))

    def construct(self, x):
        return self.conv(x) * self.scale


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.layers = nn.SequentialCell(nn.Flatten(), nn.Dense(32, 4, activation="relu"))
        self.list = nn.CellList([nn.Dense(4, 4), nn.Dense(4, 3)])

    def construct(self, x):
        x = self.layers(self.block(x))
        for cell in self.list:
            x = cell(x)
        return x


def test_parameter_names_are_mindspores():
    net = Net()
    assert [p.name for p in net.get_parameters()] == [
        "block.scale", "block.conv.weight", "block.conv.bias", "layers.1.weight", "layers.1.bias", "list.0.weight",
        "list.0.bias", "list.1.weight", "list.1.bias"]
    assert [n for n, _ in net.parameters_and_names()] == [p.name for p in net.get_parameters()]
    assert list(net.parameters_dict()) == [p.name for p in net.get_parameters()]
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    assert optimizer.moments[0].name == "moments.block.scale"
    assert [n for n, _ in net.cells_and_names()][:4] == ["", "block", "block.conv", "layers"]


def test_repr_shows_the_tree():
    assert repr(nn.SequentialCell(nn.Dense(2, 3), nn.ReLU())) == (
        "SequentialCell(\n  (0): Dense(input_channels=2, output_channels=3, has_bias=True)\n  (1): ReLU()\n)")


def test_train_flags_reach_all_cells():
    net = Net().set_train()
    assert all(c.training for _, c in net.cells_and_names())
    net.set_train(False)
    assert not any(c.training for _, c in net.cells_and_names())


def test_attributes_change_kind():
    net = Net()
    net.block = 3
    assert net.block == 3 and "block" not in net.name_cells()
    net.extra = Parameter(Tensor([1.0]), name="mine")
    assert net.parameters_dict()["mine"] is net.extra
    del net.extra
    with pytest.raises(AttributeError, match="Net has no attribute 'extra'"):
        _ = net.extra


def test_containers():
    cells = nn.CellList([nn.ReLU()])
    cells.append(nn.Tanh()).extend([nn.Flatten()])
    assert len(cells) == 3 and isinstance(cells[-1], nn.Flatten) and len(cells[:2]) == 2
    with pytest.raises(TypeError, match="item 0 is a int"):
        nn.SequentialCell(3)
    with pytest.raises(IndexError, match="index 7 of 3"):
        cells[7]


def test_parameters_copy_and_keep_their_memory():
    p = Parameter(Tensor([1.0, 2.0]), name="p")
    kept, other = p._array, copy.deepcopy(p)
    p.set_data(Tensor([5.0, 6.0]))
    assert p._array is kept and other.tolist() == [1, 2] and other.name == "p"
    assert ParameterTuple([p]).clone("m", "zeros")[0].name == "m.p"
    with pytest.raises(ValueError, match=r"Parameter p: set_data got shape \(3,\)"):
        p.set_data(Tensor(np.zeros(3)))
    with pytest.raises(TypeError, match="all items must be Parameters"):
        ParameterTuple([1])


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize("make", [copy.deepcopy, lambda cell: pickle.loads(pickle.dumps(cell))], ids=["copy", "pickle"])
def test_a_copy_of_a_cell_lives_on_its_own(make, mode):
    ms.set_context(mode=mode)
    net = nn.SequentialCell(nn.Dense(3, 2, weight_init="ones", bias_init="zeros"))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.SGD(net.trainable_params(), 0.1))
    x, y = Tensor(np.ones((1, 3), np.float32)), Tensor([0])
    step(x, y)
    before = net(x).tolist()
    other = make(step)
    twin = other.network.backbone_network
    assert twin(x).tolist() == before
    other(x, y)
    assert net(x).tolist() == before and twin(x).tolist() != before
    step(x, y)
    assert net(x).tolist() == twin(x).tolist()


IMAGES = Tensor(np.zeros((2, 1, 8, 8), np.float32))


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: nn.Conv2d(1, 6, 5)(Tensor(np.zeros((32, 28, 28, 1), np.uint8))), TypeError,
     r"x is uint8 of shape \(32, 28, 28, 1\).*Rescale\(1/255, 0\), HWC2CHW"),
    (lambda: nn.Conv2d(3, 6, 5)(IMAGES), ValueError, "has 1 channels, so the weight must be"),
    (lambda: nn.Conv2d(1, 6, 9, pad_mode="valid")(IMAGES), ValueError, r"kernel \(9, 9\) covers \(9, 9\), more than"),
    (lambda: nn.Conv2d(1, 6, 3, padding=1), ValueError, "padding .* only used with pad_mode='pad'"),
    (lambda: nn.Conv2d(1, 6, 3, pad_mode="half"), ValueError, "pad_mode 'half' must be"),
    (lambda: nn.Conv2d(0, 6, 3), ValueError, "in_channels=0 must be a positive"),
    (lambda: nn.Conv2d(1, 6, 0), ValueError, "kernel_size 0 must be a positive"),
    (lambda: nn.MaxPool2d(2, 2)(Tensor([[1.0]])), ValueError, r"takes \(batch, channels, height, width\)"),
    (lambda: nn.MaxPool2d(2, 2, "pad", 2), ValueError, "more than half the kernel"),
    (lambda: nn.Dense(3, 2)(Tensor([[1.0, 2.0]])), ValueError, r"shape \(1, 2\), so 2 features, 3 are needed"),
    (lambda: nn.Dense(3, 2)(Tensor([[1, 2, 3]])), TypeError, "x of shape .* is int64; it takes float"),
    (lambda: nn.Dense(3, 2, activation="swishy"), ValueError, "activation 'swishy' is unknown"),
    (lambda: nn.Dense(3, -2), ValueError, "out_channels=-2"),
    (lambda: nn.CrossEntropyLoss()(Tensor([[1.0, 2.0]]), Tensor([0.0])), TypeError, r"labels .* float32.*TypeCast\(ms.int32\)"),
    (lambda: nn.CrossEntropyLoss()(Tensor([[1.0, 2.0]]), Tensor([0, 1])), ValueError, r"class indices of shape \(1,\)"),
    (lambda: nn.CrossEntropyLoss()(Tensor([[1.0, 2.0]]), Tensor([5])), ValueError, "label 5 is outside 0 … 1"),
    (lambda: nn.CrossEntropyLoss(reduction="avg"), ValueError, "reduction 'avg' must be"),
    (lambda: nn.CrossEntropyLoss(label_smoothing=2)(Tensor([[1.0]]), Tensor([0])), ValueError, "label_smoothing 2"),
    (lambda: nn.SoftmaxCrossEntropyWithLogits()(Tensor([[1.0, 2.0]]), Tensor([1])), TypeError, "sparse=True, reduction='mean'"),
    (lambda: nn.SoftmaxCrossEntropyWithLogits(True)(Tensor([[1.0, 2.0]]), Tensor([1.0])), TypeError, "must be integers"),
    (lambda: ops.add(Tensor([1.0, 2.0]), Tensor([1.0, 2.0, 3.0])), ValueError, r"shapes \(2,\) and \(3,\) don't broadcast"),
    (lambda: ops.matmul(Tensor(np.ones((2, 3))), Tensor(np.ones((2, 3)))), ValueError, "3 columns but w .* 2 rows"),
    (lambda: ops.reshape(Tensor([1.0, 2.0]), (3,)), ValueError, "number of values must stay the same"),
    (lambda: ops.relu("text"), TypeError, "input 0 is a str"),
    (lambda: Tensor("text"), TypeError, "can't be a tensor"),
    (lambda: Tensor([[1, 2], [3]]), ValueError, "don't form a rectangle"),
    (lambda: Tensor(), TypeError, "no data given"),
    (lambda: float(Tensor([1.0, 2.0])), ValueError, "2 values; item"),
    (lambda: bool(Tensor([1.0, 2.0])), ValueError, "2 values"),
    (lambda: ms.initializer("fancy", (2,)), ValueError, "unknown name 'fancy'"),
    (lambda: ms.initializer("xavier_uniform", (2,)), ValueError, "fan_in and fan_out need a weight"),
    (lambda: Model(3), TypeError, "network is a int"),
    (lambda: Model(Net(), metrics={"speed"}), ValueError, "metric 'speed' is unknown"),
    (lambda: Model(Net()).eval(None), ValueError, "no metrics were given"),
])
@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def test_messages(call, error, message, mode):
    ms.set_context(mode=mode)
    with pytest.raises(error, match=message):
        call()


class SecondDocument(nn.Cell):
    """The second document's LeNet, with its fault: Conv2d pads 'same' by default, the Dense wants 'valid'."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(6 * 12 * 12, 120)

    def construct(self, x):
        return self.fc1(self.flatten(self.pool(ops.relu(self.conv1(x)))))


def test_a_wrong_number_of_features_is_explained():
    net, x = SecondDocument(), Tensor(np.zeros((32, 1, 28, 28), np.float32))
    explained = r"6·14·14 = 1176.*864 = 6·12·12 is what pad_mode='valid' would give.*'same' \(the default\)"
    for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
        ms.set_context(mode=mode)
        with pytest.raises(ValueError, match=explained):
            ms.value_and_grad(lambda x: ops.sum(net(x)), None, net.trainable_params())(x)
    with pytest.raises(ValueError, match="1176 features, 864 are needed.*pad_mode='valid' makes them smaller"):
        net(x)              # op by op nobody knows where x came from
    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(ValueError, match=explained):
        net(x)


def test_two_parameters_of_one_name_are_refused():
    class Twins(nn.Cell):
        def __init__(self):
            super().__init__()
            self.a, self.b = Parameter(Tensor([1.0]), name="w"), Parameter(Tensor([2.0]), name="w")
    with pytest.raises(ValueError, match="two parameters of Twins are named 'w'"):
        Twins().trainable_params()


def test_super_init_comes_first():
    class Hasty(nn.Cell):
        def __init__(self):
            self.x = 1
    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) first"):
        Hasty()


# ---- Model ------------------------------------------------------------------------------------------

def data(rows=24, batch=4, shuffle=False, labels=None):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(rows, 1, 4, 4)).astype(np.float32), rng.integers(0, 3, rows).astype(np.int32)
    return ds.NumpySlicesDataset((x, y if labels is None else labels), ["x", "y"], shuffle=shuffle).batch(batch)


def model(rate=0.1, **kwargs):
    net = Net()
    return Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), rate), metrics={"accuracy", "loss"}, **kwargs)


def test_train_eval_predict(capsys):
    m = model()
    before = m.eval(data())["loss"]
    m.train(5, data(), callbacks=[LossMonitor(6), TimeMonitor()], verbose=1)
    assert m.eval(data())["loss"] < before
    assert m.predict(Tensor(np.zeros((1, 1, 4, 4), np.float32))).shape == (1, 3)
    out = capsys.readouterr().out
    assert out.count("per step time:") == 5 and "epoch: 2 step: 6, loss is" in out
    assert "epoch 5/5 [####################] 6/6  loss" in out and "samples/s" in out


def test_it_is_silent_unless_asked(capsys):
    model().train(1, data())
    assert capsys.readouterr().out == ""


def test_callbacks_can_stop_it():
    seen = []
    class Stop(Callback):
        def on_train_step_end(self, run_context):
            seen.append(run_context.original_args().cur_step_num)
            if len(seen) == 4:
                run_context.request_stop()
        def on_train_end(self, run_context):
            seen.append("end")
    model().train(9, data(), Stop())
    assert seen == [1, 2, 3, 4, "end"]
    with pytest.raises(TypeError, match="must be a train.Callback object"):
        model().train(1, data(), [print])


def test_a_loss_of_nan_warns_with_step_and_rank():
    with np.errstate(all="ignore"), pytest.warns(UserWarning, match=r"loss is (nan|inf) at step \d+ \(epoch 1\) on rank 0"):
        model(rate=1e30).train(1, data())


@pytest.mark.parametrize("epoch", [0, -1, 1.5, True])
def test_bad_epochs(epoch):
    with pytest.raises(ValueError, match="must be a whole number ≥ 1"):
        model().train(epoch, data())


def test_no_optimizer():
    with pytest.raises(ValueError, match="no optimizer was given"):
        Model(Net(), nn.CrossEntropyLoss()).train(1, data())


def test_accuracy():
    metric = Accuracy()
    metric.update(np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]]), np.array([1, 1, 1]), valid=np.array([True, True, False]))
    assert metric.eval() == 0.5
    metric.clear()
    with pytest.raises(RuntimeError, match="no samples seen"):
        metric.eval()
    with pytest.raises(ValueError, match=r"predictions \(2, 2\) need labels of shape \(2,\)"):
        metric.update(np.zeros((2, 2)), np.zeros(3))
    metric.update(np.array([[0.1, 0.9]]), np.array([[0, 1]]))
    assert metric.eval() == 1


def test_train_one_step_returns_what_is_asked_for():
    net = Net()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.SGD(net.trainable_params()), sens=2.0,
                               return_grad=True)
    x, y = Tensor(np.ones((2, 1, 4, 4), np.float32)), Tensor([0, 1])
    plain = ms.grad(nn.WithLossCell(net, nn.CrossEntropyLoss()), None, net.trainable_params())(x, y)
    loss, grads = step(x, y)
    assert loss.shape == () and len(grads) == len(net.trainable_params())
    np.testing.assert_allclose(grads[0].asnumpy(), 2 * plain[0].asnumpy(), rtol=1e-5, atol=1e-7)
