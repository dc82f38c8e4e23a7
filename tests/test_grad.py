"""grad, value_and_grad, GradOperation, jit, bprop, stop_gradient: the same in both modes."""
import numpy as np
import pytest

import minispore as ms
from minispore import Parameter, Tensor, nn, ops


@pytest.fixture(params=[ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"], autouse=True)
def mode(request):
    ms.set_context(mode=request.param)
    return request.param


def cube(x):
    return x * x * x


def test_grad_and_higher_derivatives():
    x = Tensor(2.0)
    assert float(ms.grad(cube)(x)) == 12
    assert float(ms.grad(ms.grad(cube))(x)) == 12
    assert float(ms.grad(ms.grad(ms.grad(cube)))(x)) == 6


def test_an_inner_gradient_counts_only_its_own_argument():
    # d/dx [x · d/dy (x·y²) at y = x] = d/dx [x · 2x²]
    outer = ms.grad(lambda x: x * ms.grad(lambda y: x * y * y)(x))
    assert float(outer(Tensor(3.0))) == 54


def test_positions_and_weights():
    w = Parameter(Tensor([2.0, 3.0]), name="w")
    x, y = Tensor([1.0, 4.0]), Tensor([5.0, 6.0])
    def f(x, y):
        return ops.sum(x * y * w)
    value, grad = ms.value_and_grad(f)(x, y)
    assert float(value) == 82 and grad.tolist() == [10, 18]
    _, (gx, gy) = ms.value_and_grad(f, (0, 1))(x, y)
    assert gx.tolist() == [10, 18] and gy.tolist() == [2, 12]
    assert ms.grad(f, None, w)(x, y).tolist() == [5, 24]
    assert [g.tolist() for g in ms.grad(f, None, [w])(x, y)] == [[5, 24]]
    to_x, to_w = ms.grad(f, 0, [w])(x, y)
    assert to_x.tolist() == [10, 18] and to_w[0].tolist() == [5, 24]


def test_has_aux_passes_the_rest_through():
    def f(x):
        return ops.sum(x * x), x + 1
    (loss, aux), grad = ms.value_and_grad(f, has_aux=True)(Tensor([1.0, 2.0]))
    assert float(loss) == 5 and aux.tolist() == [2, 3] and grad.tolist() == [2, 4]
    grad, aux = ms.grad(f, has_aux=True)(Tensor([1.0, 2.0]))
    assert grad.tolist() == [2, 4] and aux.tolist() == [2, 3]


def test_several_outputs_are_summed():
    assert ms.grad(lambda x: (x * 2, x * x))(Tensor([1.0, 2.0])).tolist() == [4, 6]


def test_no_path_gives_zeros():
    x, y = Tensor([1.0, 2.0]), Tensor([3.0])
    gx, gy = ms.grad(lambda x, y: x * 2, (0, 1))(x, y)
    assert gx.tolist() == [2, 2] and gy.tolist() == [0]


def test_grad_operation_forms():
    w = Parameter(Tensor([3.0]), name="w")
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = w
        def construct(self, x, y):
            return x * y * self.w
    x, y, net = Tensor([2.0]), Tensor([5.0]), Net()
    assert ops.GradOperation()(net)(x, y).tolist() == [15]
    assert [g.tolist() for g in ops.GradOperation(get_all=True)(net)(x, y)] == [[15], [6]]
    assert [g.tolist() for g in ops.GradOperation(get_by_list=True)(net, net.trainable_params())(x, y)] == [[10]]
    (gx, gy), (gw,) = ops.GradOperation(get_all=True, get_by_list=True)(net, [w])(x, y)
    assert (gx.tolist(), gy.tolist(), gw.tolist()) == ([15], [6], [10])
    assert ops.GradOperation(sens_param=True)(net)(x, y, Tensor([10.0])).tolist() == [150]
    with pytest.raises(ValueError, match=r"output 0 has shape \(1,\), its sens has \(2,\)"):
        ops.GradOperation(sens_param=True)(net)(x, y, Tensor([10.0, 1.0]))


def test_stop_gradient():
    assert ms.grad(lambda x: x * ops.stop_gradient(x))(Tensor(3.0)).tolist() == 3


class Clipped(nn.Cell):
    """Twice x, with a gradient of its own choosing."""

    def construct(self, x, y):
        return x * 2 + y

    def bprop(self, x, y, out, dout):
        return dout * 10 + out, ops.zeros_like(y)


def test_bprop_replaces_the_gradient():
    net, x, y = Clipped(), Tensor([1.0, 2.0]), Tensor([5.0, 5.0])
    assert net(x, y).tolist() == [7, 9]
    gx, gy = ms.grad(lambda x, y: net(x, y) * 3, (0, 1))(x, y)
    assert gx.tolist() == [37, 39] and gy.tolist() == [0, 0]


def test_bprop_differentiates_again():
    class Square(nn.Cell):
        def construct(self, x):
            return x * x
        def bprop(self, x, out, dout):
            return (2 * x * dout,)
    net = Square()
    assert float(ms.grad(ms.grad(lambda x: net(x)))(Tensor(3.0))) == 2


@pytest.mark.parametrize(("returned", "message"), [
    (lambda x, out, dout: (dout, dout), "returned 2 gradients for 1 inputs"),
    (lambda x, out, dout: ops.sum(dout), r"gradient to input 0 has shape \(\)"),
    (lambda x, out, dout: 2.0, "Bad.bprop: the gradient to input 0 is a .*compute it"),
])
def test_bad_bprop(returned, message):
    class Bad(nn.Cell):
        def construct(self, x):
            return x * 2
        def bprop(self, x, out, dout):
            return returned(x, out, dout)
    net = Bad()
    with pytest.raises((TypeError, ValueError), match=message):
        ms.grad(lambda x: net(x))(Tensor([1.0, 2.0]))


def test_jit_compiles_once_a_signature():
    calls = []
    @ms.jit
    def f(x, scale=2):
        calls.append(x.shape)
        return {"y": x * scale, "n": scale}
    for _ in range(3):
        out = f(Tensor([1.0, 2.0]))
    assert out["y"].tolist() == [2, 4] and out["n"] == 2 and len(calls) == 1
    assert f(Tensor([1.0, 2.0]), scale=3)["y"].tolist() == [3, 6] and len(calls) == 2
    assert f(Tensor([[1.0]]))["y"].tolist() == [[2]] and len(calls) == 3
    assert float(ms.grad(lambda x: f(x)["y"])(Tensor(1.0))) == 2


def test_parameters_change_between_calls_and_inside():
    count = Parameter(Tensor([0.0]), name="count")
    @ms.jit
    def f(x):
        before = count + 0
        ops.assign(count, count + x)
        return before, count * 1
    assert [t.tolist() for t in f(Tensor([2.0]))] == [[0], [2]]
    assert [t.tolist() for t in f(Tensor([3.0]))] == [[2], [5]]
    count.set_data(Tensor([100.0]))
    assert [t.tolist() for t in f(Tensor([1.0]))] == [[100], [101]]


def test_two_parameters_can_be_swapped():
    a, b = Parameter(Tensor([1.0]), name="a"), Parameter(Tensor([2.0]), name="b")
    @ms.jit
    def swap():
        old = a + 0
        ops.assign(a, b)
        ops.assign(b, old)
    swap()
    assert (a.asnumpy(), b.asnumpy()) == (2, 1)


def test_a_parameter_hands_its_old_value_on():
    a, b, c = (Parameter(Tensor([float(i)]), name=n) for i, n in enumerate("abc"))
    @ms.jit
    def shift(x):
        for target, source in ((a, b), (b, c), (c, x)):
            ops.assign(target, source)
    shift(Tensor([9.0]))
    assert (a.asnumpy(), b.asnumpy(), c.asnumpy()) == (1, 2, 9)


def test_a_parameter_gets_an_old_value_after_its_owner_changed():
    w, old, older = (Parameter(Tensor([v]), name=n) for v, n in ((1.0, "w"), (0.0, "old"), (-1.0, "older")))
    @ms.jit
    def f(g):
        ops.assign(old, w)
        ops.assign(w, w - g)
        ops.assign(older, old)
    f(Tensor([0.5]))
    assert (w.asnumpy(), old.asnumpy(), older.asnumpy()) == (0.5, 1, 1)


def test_arguments_that_cant_be_hashed_are_told_apart():
    f = ms.jit(lambda x, c: x * sum(c))
    assert [f(Tensor([1.0]), {float(k)}).item() for k in (2, 3, 4, 5)] == [2, 3, 4, 5]


def test_has_aux_needs_two_outputs():
    with pytest.raises(TypeError, match="returns one output"):
        ms.value_and_grad(lambda x: x * x, has_aux=True)(Tensor([2.0, 3.0]))


def test_a_parameter_attribute_is_assigned_to():
    class Counter(nn.Cell):
        def __init__(self):
            super().__init__()
            self.n = Parameter(Tensor([0.0]), name="n")
        def construct(self, x):
            self.n += 1
            return x * self.n
    net = Counter()
    assert [net(Tensor([1.0])).item() for _ in range(3)] == [1, 2, 3]
    assert [p.name for p in net.get_parameters()] == ["n"]


def test_a_gradient_sees_the_value_before_an_assignment():
    w = Parameter(Tensor([3.0]), name="w")
    def f(x):
        y = x * w
        ops.assign(w, w * 0)
        return y
    assert ms.grad(f)(Tensor([1.0])).tolist() == [3] and w.asnumpy() == 0


def test_training_flag_is_part_of_the_program():
    class Net(nn.Cell):
        def construct(self, x):
            return x * (2 if self.training else 1)
    net = Net()
    assert net(Tensor(1.0)).tolist() == 1
    net.set_train()
    assert net(Tensor(1.0)).tolist() == 2
    assert float(ms.grad(lambda x: net(x))(Tensor(1.0))) == 2
    net.set_train(False)
    assert net(Tensor(1.0)).tolist() == 1


def test_results_stay_when_the_program_runs_again():
    f = ms.jit(lambda x: ops.reshape(x * 2, (2, 1)))
    first = f(Tensor([1.0, 2.0]))
    f(Tensor([5.0, 6.0]))
    assert first.tolist() == [[2], [4]]


def test_messages():
    x = Tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="grad_position 3, but the function was called with 1"):
        ms.grad(cube, 3)(x)
    with pytest.raises(TypeError, match="weights are Parameters"):
        ms.grad(cube, None, [x])
    with pytest.raises(ValueError, match="neither grad_position nor weights"):
        ms.grad(cube, None)
    w = Parameter(x, name="w")
    with pytest.warns(UserWarning, match=r"loss has shape \(2,\).*reduction='mean'") as seen:
        ms.value_and_grad(lambda x: x * w, None, w)(x)
    assert seen[0].filename == __file__
    with pytest.raises(TypeError, match="Argmax: got 0 arguments, it takes"):
        ops.Argmax()()


def test_python_control_flow_on_values():
    def f(x):
        return x * 2 if ops.sum(x) > 0 else x
    if ms.get_context("mode") == ms.PYNATIVE_MODE:
        assert ms.grad(f)(Tensor([1.0])).tolist() == [2]
    else:
        with pytest.raises(ms.TraceError, match="Python branch .* ops.select"):
            ms.grad(f)(Tensor([1.0]))
        with pytest.raises(ms.TraceError, match="asked for the value .*PYNATIVE_MODE"):
            ms.jit(lambda x: x.asnumpy())(Tensor([1.0]))
    leaked = []
    ms.jit(lambda x: leaked.append(x * 2) or x)(Tensor([1.0]))
    with pytest.raises(ms.TraceError):
        ops.relu(leaked[0])


@pytest.mark.parametrize(("f", "found"), [(lambda x: None, "a NoneType"), (lambda x: 3.0, "a float"),
                                          (lambda x: ops.argmax(x), r"int32 of shape \(\)")])
def test_what_has_no_gradient_is_refused(f, found):
    with pytest.raises(TypeError, match=f"the function returned {found}, which has no gradient"):
        ms.grad(f)(Tensor([1.0, 2.0]))


def test_zero_and_minus_zero_are_two_constants():
    ms.set_context(mode=ms.GRAPH_MODE)
    f = ms.jit(lambda x: 1 / (x * ops.full((1,), 0.0)) + 1 / (x * ops.full((1,), -0.0)))
    assert f(Tensor([1.0])).isnan().all()           # inf - inf


@pytest.mark.parametrize(("answer", "error", "found"), [
    (lambda dout: None, TypeError, "returned None; return a tuple with one gradient an input"),
    (lambda dout: dout, TypeError, "returned a minispore.Tensor; return a tuple"),
    (lambda dout: (dout, dout), ValueError, "returned 2 gradients for 1 inputs"),
    (lambda dout: (np.ones(2, np.float32),), TypeError, "to input 0 is a numpy.ndarray; compute it with ops"),
    (lambda dout: (ops.sum(dout),), ValueError, r"to input 0 has shape \(\), the input has \(2,\)"),
])
def test_a_gradient_that_is_none_is_told(answer, error, found):
    class Twice(ops.Primitive):
        def rule(self, x):
            return "... -> ..."

        def infer(self, x):
            return x

        def forward(self, x):
            return 2 * x

        def gradient(self, x, out, dout):
            return answer(dout)

    twice = Twice()
    with pytest.raises(error, match=rf"Twice\.gradient.*{found}"):
        ms.grad(lambda x: ops.sum(twice(x)))(Tensor([1.0, 2.0]))
