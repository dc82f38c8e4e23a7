"""The graph's passes and memory plan."""
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import minispore as ms
from minispore import Parameter, Tensor, ops
from minispore.graph import memory
from minispore.graph.compile import trace_call
from minispore.graph.execute import Program
from minispore.graph.passes import simplify


def names(graph):
    return [n.op.name for n in graph.nodes]


def test_unused_nodes_go_and_duplicates_are_computed_once():
    def f(x):
        ops.exp(x)
        return ops.tanh(x) + ops.tanh(x)
    graph = trace_call(f, Tensor([1.0]))
    assert names(graph) == ["Exp", "Tanh", "Tanh", "Add"]
    assert names(simplify(graph)) == ["Tanh", "Add"]


def test_constants_are_folded():
    graph = simplify(trace_call(lambda x: x * ops.exp(Tensor([1.0, 2.0])), Tensor([1.0, 1.0])))
    assert names(graph) == ["Mul"]
    np.testing.assert_allclose(Program(graph)([np.ones(2, np.float32)])[0], np.exp([1, 2]), rtol=1e-6)


def test_show_reads_well():
    w = Parameter(Tensor([2.0]), name="w")
    def f(x):
        ops.assign(w, w * x)
        return w + 1
    text = trace_call(f, Tensor([1.0])).show()
    assert "input     x0           float32[1]" in text and "parameter w            float32[1]" in text
    assert "w := %" in text and text.splitlines()[-1].startswith("return %")


@given(st.integers(2, 40), st.integers(0, 10 ** 6))
def test_memory_of_live_values_never_overlaps(n, seed):
    """Random programs: whatever is still needed lies apart, and the compiled values equal those computed one by one."""
    rng = np.random.default_rng(seed)
    choices = [(rng.integers(0, 4), rng.integers(0, i + 1, 2)) for i in range(n)]
    def f(x):
        made = [x]
        for kind, (a, b) in choices:
            p, q = made[a], made[b]
            made.append([lambda p, q: p + ops.sum(q) * 0.1, lambda p, q: ops.tanh(p), lambda p, q: ops.reshape(p, (-1,)),
                         lambda p, q: ops.concat((ops.reshape(p, (-1,))[:3], ops.reshape(q, (-1,))[:2]))][kind](p, q))
        return made[-1], made[n // 2]
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    eager = f(Tensor(x))
    graph = simplify(trace_call(f, Tensor(x)))
    program = Program(graph)
    for mine, theirs in zip(program([x]), eager, strict=True):
        np.testing.assert_array_equal(mine, theirs.asnumpy())
    assert program.plan.size <= sum(memory.bytes_of(v) for node in graph.nodes for v in node.outs)


def test_memory_is_given_back():
    def f(x):
        for _ in range(50):
            x = ops.tanh(x)
        return x
    program = Program(trace_call(f, Tensor(np.zeros(1000))))
    assert program.plan.size <= 3 * 8064


def test_errors_at_run_time_name_op_and_cell():
    class Net(ms.nn.Cell):
        def construct(self, x, i):
            return ops.gather(x, i, 0)
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        Net()(Tensor([1.0, 2.0]), Tensor([7]))
    except IndexError as e:
        assert "index 7 is outside axis 0 of size 2" in str(e) and "of cell Net" in e.__notes__[0]
    else:
        raise AssertionError("no error")


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["add", "sub", "mul", "copy", "neg", "sum", "matmul"]),
                          st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=10), st.integers(0, 5))
def test_new_values_are_written_over_old_ones_only_where_nobody_reads_those(program, returned):
    """Any sequence of assignments to three parameters gives what running line by line gives."""
    def run(mode):
        ms.set_context(mode=mode)
        params = [Parameter(Tensor(np.arange(4.0).reshape(2, 2) + i), name=f"p{i}") for i in range(3)]

        def step(x):
            values = [*params, x, x * 2, params[0] + x]         # of the last three the parameters' changes change nothing
            waiting = []                                        # so that old values are read after the new ones are made
            for target, what, a, b in program:
                a, b = values[a], values[b]
                new = {"add": lambda a=a, b=b: a + b, "sub": lambda a=a, b=b: a - b, "mul": lambda a=a, b=b: a * b,
                       "copy": lambda a=a: a, "neg": lambda a=a: -a, "sum": lambda a=a: a + ops.sum(a, 0, True),
                       "matmul": lambda a=a, b=b: ops.matmul(a, b)}[what]()
                waiting.append((target, new / 4))
                if a is not b:
                    for t, value in waiting:
                        ops.assign(params[t], value)
                    waiting = []
            return values[returned] + 0
        compiled = ms.jit(step) if mode == ms.GRAPH_MODE else step
        out = [compiled(Tensor(np.ones((2, 2)))).asnumpy() for _ in range(2)]
        return [*out, *(p.asnumpy() for p in params)]
    for a, b in zip(run(ms.GRAPH_MODE), run(ms.PYNATIVE_MODE), strict=True):
        np.testing.assert_array_equal(a, b)
