"""Cell: programs follow its changes, hooks, buffers, state_dict, precision, containers, messages."""
import copy
import pickle

import numpy as np
import pytest

import minispore as ms
from minispore import Parameter, ParameterTuple, Tensor, nn, ops

BOTH_MODES = pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
X = Tensor(np.array([[1.0, -2.0], [3.0, 0.5]]))


class Scaled(nn.Cell):
    def __init__(self, w=2.0):
        super().__init__()
        self.w = Parameter(np.array(w), name="w")
        self.scale, self.inner, self.list = 1.0, nn.ReLU(), nn.CellList([nn.ReLU()])
        self.traces = 0

    def construct(self, x):
        self.traces += 1
        for cell in self.list:
            x = cell(x)
        return self.inner(x) * self.w * self.scale


# ---- compiled programs follow changes --------------------------------------------------------------------------------

CHANGES = {     # what is done to the cell, and the factor of relu(x) then
    "a number": (lambda net: setattr(net, "scale", 3.0), 6.0),
    "a tensor": (lambda net: setattr(net, "scale", Tensor(np.array(5.0))), 10.0),
    "a cell inside": (lambda net: setattr(net, "inner", Double()), 4.0),
    "a cell of a list": (lambda net: net.list.append(Double()), 4.0),
    "an item": (lambda net: net.list.__setitem__(0, Double(nn.ReLU())), 4.0),
    "a parameter": (lambda net: setattr(net, "w", Parameter(np.array(7.0), name="w")), 7.0),
    "a parameter's value": (lambda net: net.w.set_data(Tensor(np.array(9.0))), 9.0),
    "a hook": (lambda net: net.inner.register_forward_hook(lambda cell, args, out: out * 2), 4.0),
    "a deletion": (lambda net: net.list.__delitem__(0), 2.0),
}


class Double(nn.Cell):
    def __init__(self, before=None):
        super().__init__()
        self.before = before

    def construct(self, x):
        return 2 * (x if self.before is None else self.before(x))


@BOTH_MODES
@pytest.mark.parametrize("change", CHANGES)
def test_a_program_follows_changes(change, mode):
    ms.set_context(mode=mode)
    net, relu = Scaled(), np.maximum(X.asnumpy(), 0)
    np.testing.assert_allclose(net(X).asnumpy(), 2 * relu)
    apply, factor = CHANGES[change]
    apply(net)
    np.testing.assert_allclose(net(X).asnumpy(), factor * relu)


def test_programs_are_kept_while_nothing_changes_and_dropped_afterwards():
    ms.set_context(mode=ms.GRAPH_MODE)
    net = Scaled()
    narrow = X[:1]
    for _ in range(3):
        net(X)
        net(narrow)             # another program, and construct sets self.traces while it is traced
    assert net.traces == 2
    net.scale = 1.0             # the same value
    net(X)
    assert net.traces == 2
    for scale in range(5):
        net.scale = float(scale + 2)
        net(X)
    assert net.traces == 7
    (kinds,) = net._compiled.programs.values()
    assert [len(variants) for variants in kinds.values()] == [1, 1]
    net.set_train()
    net(X)
    net.set_train(False)
    net(X)
    assert net.traces == 8      # both flags' programs are kept


def test_a_cell_shared_by_two_programs_changes_both():
    ms.set_context(mode=ms.GRAPH_MODE)
    net = Scaled()
    outer = nn.SequentialCell(net)
    direct = ms.jit(lambda x: net(x) + 1)
    outer(X), direct(X)
    net.scale = 3.0
    np.testing.assert_allclose(outer(X).asnumpy() + 1, direct(X).asnumpy())
    assert direct(X).asnumpy().max() == 19


# ---- hooks -------------------------------------------------------------------------------------------------------------

@BOTH_MODES
def test_forward_hooks(mode):
    ms.set_context(mode=mode)
    cell, seen = nn.ReLU(), []
    cell.register_forward_pre_hook(lambda cell, args: seen.append(("pre", cell, len(args))))
    before = cell.register_forward_pre_hook(lambda cell, args: args[0] + 10)
    with_kwargs = cell.register_forward_pre_hook(lambda cell, args, kwargs: ((args[0] + 1,), kwargs), with_kwargs=True)
    after = cell.register_forward_hook(lambda cell, args, out: (seen.append(("post", args[0].shape)), out * 2)[1])
    cell.register_forward_hook(lambda cell, args, kwargs, out: seen.append(("kwargs", kwargs)), with_kwargs=True)
    np.testing.assert_allclose(cell(X).asnumpy(), 2 * (X.asnumpy() + 11))
    assert seen == [("pre", cell, 1), ("post", (2, 2)), ("kwargs", {})]
    before.remove()
    before.remove()                     # twice does no harm
    with_kwargs.remove()
    np.testing.assert_allclose(cell(X).asnumpy(), 2 * np.maximum(X.asnumpy(), 0))
    after.remove()
    np.testing.assert_allclose(cell(X).asnumpy(), np.maximum(X.asnumpy(), 0))


class Two(nn.Cell):
    """sum((3·x)² · w); the middle cell squares."""

    def __init__(self):
        super().__init__()
        self.square, self.w = Square(), Parameter(np.array([1.0, 2.0]), name="w")

    def construct(self, x):
        return ops.sum(self.square(3 * x) * self.w)


class Square(nn.Cell):
    def construct(self, x):
        return x * x


@BOTH_MODES
def test_backward_hooks_see_and_change_gradients(mode):
    ms.set_context(mode=mode)
    net, seen = Two(), {}
    x = X.asnumpy()
    handles = [net.square.register_backward_hook(lambda cell, gin, gout: seen.update(gin=gin, gout=gout)),
               net.square.register_backward_pre_hook(lambda cell, gout: seen.update(pre=gout))]
    gradient = ms.grad(net)
    np.testing.assert_allclose(gradient(X).asnumpy(), 18 * x * [1, 2])
    assert len(seen["gin"]) == len(seen["gout"]) == 1
    if mode == ms.PYNATIVE_MODE:        # in a graph they were symbols
        np.testing.assert_allclose(seen["gout"][0].asnumpy(), np.ones((2, 2)) * [1, 2])
        np.testing.assert_allclose(seen["pre"][0].asnumpy(), np.ones((2, 2)) * [1, 2])
        np.testing.assert_allclose(seen["gin"][0].asnumpy(), 6 * x * [1, 2])
    for h in handles:
        h.remove()
    net.square.register_backward_pre_hook(lambda cell, gout: gout[0] * 10)
    np.testing.assert_allclose(gradient(X).asnumpy(), 180 * x * [1, 2])
    net.square.register_backward_hook(lambda cell, gin, gout: (gin[0] + 1,))
    np.testing.assert_allclose(gradient(X).asnumpy(), 180 * x * [1, 2] + 3)


@BOTH_MODES
def test_backward_hooks_of_the_first_layer_and_of_integer_inputs(mode):
    """Nobody wants a gradient to data, the hook hears it all the same."""
    ms.set_context(mode=mode)
    seen = []
    net = Two()
    net.square.register_backward_hook(lambda cell, gin, gout: seen.append([g.shape for g in gin]))
    np.testing.assert_allclose(ms.grad(net, None, net.w)(X).asnumpy(), (9 * X.asnumpy() ** 2).sum(0))

    class Lookup(nn.Cell):
        def __init__(self):
            super().__init__()
            self.table = Parameter(np.arange(4.0), name="table")

        def construct(self, i):
            return ops.gather(self.table, i, 0)
    lookup = Lookup()
    lookup.register_backward_hook(lambda cell, gin, gout: seen.append(gin))
    grads = ms.grad(lambda i: ops.sum(lookup(i)), None, lookup.table)(Tensor([1, 1]))
    assert grads.tolist() == [0, 2, 0, 0] and seen == [[(2, 2)], ()]


def test_hooks_that_make_no_sense():
    net = Two()
    with pytest.raises(TypeError, match="a forward hook is a function, not a int"):
        net.register_forward_hook(3)
    net.square.register_backward_hook(lambda cell, gin, gout: gin[0][0])
    with pytest.raises(ValueError, match=r"a backward hook returned \[\(2,\)\], the gradients have the shapes \[\(2, 2\)\]"):
        ms.grad(net)(X)


# ---- buffers and state_dict ----------------------------------------------------------------------------------------------

class Counting(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(2, 1)
        self.register_buffer("calls", Tensor(0.0))
        self.register_buffer("mask", Tensor([1.0, 0.0]), persistent=False)
        self.register_buffer("later", None)

    def construct(self, x):
        self.calls = self.calls + 1
        return self.dense(x * self.mask)


@BOTH_MODES
def test_buffers(mode):
    ms.set_context(mode=mode)
    net = nn.SequentialCell(Counting())
    x = Tensor([[3.0, 5.0]])
    for _ in range(3):
        net(x)
    assert float(net[0].calls) == 3
    assert [n for n, _ in net.named_buffers()] == ["0.calls", "0.mask"] and len(list(net.buffers())) == 2
    assert names(net) == ["0.dense.weight", "0.dense.bias"] and len(net.trainable_params()) == 2
    before = net(x).asnumpy()
    net[0].mask = Tensor([0.0, 1.0])
    assert net.get_buffer("0.mask").tolist() == [0, 1] and (net(x).asnumpy() != before).all()
    net[0].later = Tensor([1.0])
    assert net.get_buffer("0.later").tolist() == [1] and "later" in net[0]._buffers
    assert list(net.state_dict()) == ["0.dense.weight", "0.dense.bias", "0.calls", "0.later"]
    net[0].later = None
    assert "later" in net[0]._buffers and net[0].later is None
    del net[0].later
    with pytest.raises(AttributeError, match=r"has no buffer 'later'; it has \['calls', 'mask'\]"):
        net.get_buffer("0.later")
    with pytest.raises(KeyError, match="has an attribute 'dense' already"):
        net[0].register_buffer("dense", None)
    with pytest.raises(TypeError, match="'b' is a int"):
        net[0].register_buffer("b", 3)


def test_state_dict_goes_round():
    a, b = nn.SequentialCell(Counting()), nn.SequentialCell(Counting())
    a(Tensor([[1.0, 1.0]]))
    kept = a.state_dict()
    assert b.load_state_dict(kept) == ([], [])
    assert all((x.asnumpy() == y.asnumpy()).all() for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
    a[0].dense.weight.set_data(Tensor([[9.0, 9.0]]))
    assert kept["0.dense.weight"].tolist() != [[9, 9]] and a.state_dict(keep_vars=True)["0.dense.weight"] is a[0].dense.weight
    assert list(a.state_dict(prefix="net.")) == ["net." + n for n in kept]


def test_load_state_dict_takes_all_or_nothing():
    net = nn.Dense(2, 1)
    before = net.weight.asnumpy()
    kept = {"weight": np.ones((1, 2), np.float32), "bias": np.ones(3, np.float32), "odd": np.zeros(1)}
    with pytest.raises(RuntimeError, match=r"bias has shape \(3,\) there and \(1,\) here; odd is unknown here. Nothing was"):
        net.load_state_dict(kept)
    assert (net.weight.asnumpy() == before).all()
    with pytest.raises(RuntimeError, match="weight is missing there; bias is missing there"):
        net.load_state_dict({})
    del kept["bias"]
    assert net.load_state_dict(kept, strict=False) == (["bias"], ["odd"])
    assert net.weight.tolist() == [[1, 1]]


# ---- precision -------------------------------------------------------------------------------------------------------------

class Tied(nn.Cell):
    """Uses a parameter of a cell inside."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(2, 3)
        self.count = Parameter(Tensor(0.0), name="count", requires_grad=False)

    def construct(self, x):
        ops.assign(self.count, self.count + 1)
        return ops.matmul(self.dense(x), self.dense.weight)


@BOTH_MODES
def test_to_float(mode):
    ms.set_context(mode=mode)
    net, plain = Tied(), Tied()
    plain.load_state_dict(net.state_dict())
    seen = []
    net.dense.register_forward_hook(lambda cell, args, out: seen.append((args[0].dtype, out.dtype)))
    x = Tensor([[1.0, 2.0]])
    assert net(x).dtype == ms.float32 and net.to_float(ms.float16) is net
    out = net(x)
    assert out.dtype == ms.float16 and seen[-1] == (ms.float16, ms.float16)
    np.testing.assert_allclose(out.asnumpy(), plain(x).asnumpy(), rtol=1e-2, atol=1e-3)
    assert {p.dtype for p in net.get_parameters()} == {ms.dtype.float32} and float(net.count) == 2
    grads = ms.grad(lambda x: ops.sum(net(x)), None, net.trainable_params())(x)
    assert [g.dtype for g in grads] == [ms.float32] * 2
    exact = ms.grad(lambda x: ops.sum(plain(x)), None, plain.trainable_params())(x)
    for a, b in zip(grads, exact, strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-2, atol=1e-3)
    net.dense.weight.requires_grad = False          # frozen, but a weight all the same
    assert net(x).dtype == ms.float16
    net.dense.to_float(ms.float32)
    net(x)
    assert seen[-1] == (ms.float32, ms.float32)
    with pytest.raises(ValueError, match="must be a float type"):
        net.to_float(ms.int32)


def test_to_float_casts_what_is_nested_and_leaves_integers():
    class Takes(nn.Cell):
        def construct(self, pair, index=None):
            return [t.dtype for t in (*pair, index)]
    dtypes = Takes().to_float(ms.float16)((Tensor(1.0), Tensor(np.zeros(2))), index=Tensor([1]))
    assert dtypes == [ms.float16, ms.float16, ms.int64]


# ---- what isn't found, and what can't be ---------------------------------------------------------------------------------

@pytest.mark.parametrize(("hide", "message"), [
    (lambda net: [nn.Dense(1, 1)], r"Bag\.bag is a plain list, so its 2 parameters \(weight, …\) .* \(here CellList\)"),
    (lambda net: (Parameter(1.0, name="p"),), r"Bag\.bag is a plain tuple, .* \(here ParameterTuple\)"),
    (lambda net: {"a": [nn.Dense(1, 1)]}, "Bag.bag is a plain dict"),
])
def test_parts_in_plain_lists_are_pointed_out_once(hide, message):
    class Bag(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(1, 1)
            self.bag = hide(self)
    net = Bag()
    with pytest.warns(UserWarning, match=message):
        assert len(net.trainable_params()) == 2
    net.trainable_params()


def test_parts_that_are_known_or_frozen_may_be_in_a_list():
    net = nn.SequentialCell(nn.Dense(1, 1))
    net.again, net.frozen = [net[0], net[0].weight], [nn.Dense(1, 1)]
    for p in net.frozen[0].get_parameters():
        p.requires_grad = False
    net.tuple = ParameterTuple([Parameter(1.0, name="t")])
    assert len(net.trainable_params()) == 3


@BOTH_MODES
def test_a_bprop_beside_parameters_to_train_is_refused(mode):
    ms.set_context(mode=mode)

    class Own(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = Parameter(np.array(2.0), name="w")

        def construct(self, x):
            return x * self.w

        def bprop(self, x, out, dout):
            return (dout * 2,)
    net = Own()
    assert float(net(Tensor(np.array(3.0)))) == 6
    with pytest.raises(RuntimeError, match="Own has a bprop, .* to be trained: w. Pass them to it as arguments"):
        ms.grad(net)(Tensor(np.array(3.0)))
    net.w.requires_grad = False
    assert float(ms.grad(net)(Tensor(np.array(3.0)))) == 2


@pytest.mark.parametrize(("module", "name", "near"), [
    (nn, "BatchNrom2d", None), (nn, "Dence", "Dense"), (nn, "adam", "Adam"), (ops, "matmull", "matmul"),
    (ms.dataset, "MnistDatset", "MnistDataset"), (ms.train, "LossMonitr", "LossMonitor"),
])
def test_missing_names_say_which_are_near(module, name, near):
    with pytest.raises(AttributeError, match=f"has no '?{name}'?" + (f".*did you mean.*{near}" if near else "")):
        getattr(module, name)
    assert not hasattr(module, name) and not hasattr(module, "__wrapped__")


# ---- the smaller methods ---------------------------------------------------------------------------------------------------

def test_sub_cells_names_and_flags():
    net = nn.SequentialCell(Scaled(), nn.CellDict({"a": nn.Dense(2, 1)}))
    assert net.get_sub_cell("1.a") is net[1]["a"] and net.get_sub_cell("") is net
    with pytest.raises(AttributeError, match=r"get_sub_cell\('1.b'\): CellDict has no cell 'b'; it has a"):
        net.get_sub_cell("1.b")
    net.update_cell_prefix()
    assert net[1].a.param_prefix == "1.a"
    net.update_cell_type("second")
    assert net.cell_type == "second" and net[1].cell_type == "" and net.cls_name == "SequentialCell"
    net[1].a.weight.layerwise_parallel = True
    assert list(net.parameters_broadcast_dict()) == ["0.w", "1.a.bias"]
    assert nn.ReLU().parameters_broadcast_dict() is None
    net.add_flags_recursive(fast=True)
    assert net[0].get_flags() == {"fast": True} and net[0].inner.fast
    net.check_names()
    net[1].a.weight.name = "0.w"
    with pytest.raises(ValueError, match=r"two parameters of SequentialCell are named '0\.w'"):
        net.check_names()
    assert nn.Cell(flags={"x": 3}).x == 3


def test_settings_are_accepted_or_refused_in_words():
    net = nn.Dense(2, 2)
    for chained in (net.set_comm_fusion(2), net.recompute(), net.set_jit_config(None), net.set_broadcast_flag(), net.set_grad(),
                    net.set_data_parallel(), net.set_boost("less")):
        assert chained is net
    assert net.weight.comm_fusion == 2 and net.requires_grad
    net.set_inputs(X)
    assert net.get_inputs() == (X,) and list(net.init_parameters_data()) == list(net.get_parameters())
    with pytest.raises(ValueError, match="set_comm_fusion: -1"):
        net.set_comm_fusion(-1)
    assert net.shard(((1, 1),), parameter_plan={"weight": (2, 1)}) is net and net.weight.strategy.ins == ((2, 1),)
    with pytest.raises(ValueError, match="parameter_plan names 'w'; the cell's parameters are weight, bias"):
        net.shard(parameter_plan={"w": (2, 1)})
    with pytest.raises(NotImplementedError, match="Cell.place"):
        net.place("worker", 0)


def test_copies_have_hooks_and_states_of_their_own():
    net = Counting()
    net.register_forward_hook(lambda cell, args, out: out * 0)
    other = copy.deepcopy(net)
    other(Tensor([[1.0, 1.0]]))
    assert float(other.calls) == 1 and float(net.calls) == 0
    plain = pickle.loads(pickle.dumps(nn.SequentialCell(nn.Dense(2, 1).to_float(ms.float16))))
    assert plain(Tensor([[1.0, 1.0]])).dtype == ms.float16


# ---- containers --------------------------------------------------------------------------------------------------------------

def names(cells):
    return [p.name for p in cells.get_parameters()]


@pytest.mark.parametrize("kind", [nn.CellList, nn.SequentialCell])
def test_lists_of_cells(kind):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layers = kind([nn.Dense(1, 1, has_bias=False) for _ in range(3)])
    net = Net()
    layers, (a, b, c) = net.layers, net.layers
    assert names(net) == ["layers.0.weight", "layers.1.weight", "layers.2.weight"] and b in layers
    del layers[1]
    assert list(layers) == [a, c] and names(net) == ["layers.0.weight", "layers.1.weight"] and b not in layers
    layers.insert(0, nn.Dense(1, 1, has_bias=False))
    assert names(net) == ["layers.0.weight", "layers.1.weight", "layers.2.weight"] and layers[1] is a
    layers.append(nn.Dense(1, 2))
    net.layers += [nn.ReLU(), nn.Dense(2, 1, has_bias=False)]
    assert names(net)[-3:] == ["layers.3.weight", "layers.3.bias", "layers.5.weight"] and len(layers) == 6
    layers[0] = nn.Dense(1, 1)
    assert names(net)[:2] == ["layers.0.weight", "layers.0.bias"] and layers[-6] is layers[0]
    del layers[1:]
    layers[0] = nn.Dense(1, 1, has_bias=False)
    assert names(net) == ["layers.0.weight"] and [n for n, _ in net.cells_and_names()] == ["", "layers", "layers.0"]
    with pytest.raises(IndexError, match="index 1 of 1 cells"):
        layers[1] = nn.ReLU()
    with pytest.raises(TypeError, match="item 0 is a int"):
        layers.insert(0, 3)


def test_dicts_of_cells():
    heads = nn.CellDict({"a": nn.Dense(1, 1, has_bias=False)})
    heads["b"] = nn.Dense(1, 1, has_bias=False)
    heads.update([("c", nn.ReLU())])
    assert names(heads) == ["a.weight", "b.weight"] and list(heads.keys()) == ["a", "b", "c"] and len(heads) == 3
    assert isinstance(heads.pop("c"), nn.ReLU) and "c" not in heads
    del heads["a"]
    assert [n for n, _ in heads.items()] == ["b"] and list(heads.values()) == [heads["b"]]
    with pytest.raises(KeyError, match="CellDict has no cell 'a'; it has b"):
        heads["a"]
    for bad in ("keys", "x.y", "", 3):
        with pytest.raises(ValueError, match="CellDict: the name"):
            heads[bad] = nn.ReLU()
    with pytest.raises(TypeError, match="item 'x' is a int"):
        heads["x"] = 3
    heads.clear()
    assert len(heads) == 0
