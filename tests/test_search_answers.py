"""Search: plans whose structure everybody knows are found without help."""
import numpy as np
import pytest
import transformer
from search_graphs import task_of, training, zeros

import minispore as ms
from minispore import Parameter, Tensor, nn, ops
from minispore.nn.utils import no_init_parameters
from minispore.parallel import compile
from minispore.parallel.layout import TensorLayout, whole
from minispore.parallel.search import search
from minispore.parallel.search.task import kept_in


def splits(program, op: str) -> list[tuple]:
    """The strategies that were chosen for the ops of a kind."""
    return [program.plan.strategy(n) for n in program.logical.nodes if n.op.name == op]


@pytest.mark.parametrize("mode", ["recursive_programming", "dynamic_programming", "ilp"])
def test_a_wide_mlp_with_a_small_batch_is_split_by_tensors(mode):
    net = nn.SequentialCell(nn.Dense(64, 4096), nn.ReLU(), nn.Dense(4096, 4096), nn.ReLU(), nn.Dense(4096, 8))
    program = compile(training(net), zeros(8, 64), zeros(8, 8), device_num=4, parallel_mode="auto_parallel", search_mode=mode,
                      cluster="a100")
    forward = splits(program, "MatMul")[:3]
    assert forward == [((1, 1), (4, 1)), ((1, 4), (1, 4)), ((1, 1), (1, 1))]    # by columns, by rows, the small one not at all
    assert dict(program.collectives) == {"AllReduce": 1}
    assert program.plan.seconds < program.plan.task.seconds(program.plan.data_parallel) / 2


@pytest.mark.parametrize("mode", ["recursive_programming", "dynamic_programming", "ilp"])
def test_a_convolutional_net_with_a_large_batch_is_data_parallel(mode):
    net = nn.SequentialCell(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Dense(65536, 4))
    program = compile(training(net), zeros(1024, 3, 32, 32), zeros(1024, 4), device_num=4, parallel_mode="auto_parallel",
                      search_mode=mode, cluster="a100")
    assert {x for x, _ in splits(program, "Conv2D")} == {(4, 1, 1, 1)}
    assert program.parameters == {}


class Words(nn.Cell):
    """A large table, in which words are looked up and to which what is made of them is compared."""

    def __init__(self, rows, width):
        super().__init__()
        self.table = Parameter(np.zeros((rows, width), np.float32), name="table")
        self.fc = nn.Dense(width, width)

    def construct(self, ids):
        h = ops.relu(self.fc(ops.ReduceMean()(ops.Gather()(self.table, ids, 0), 1)))
        return ops.MatMul(transpose_b=True)(h, self.table)


@pytest.mark.parametrize("mode", ["recursive_programming", "dynamic_programming", "ilp"])
def test_a_large_embedding_is_split_by_words(mode):
    step = training(Words(50_000, 64), nn.CrossEntropyLoss())
    program = compile(step, zeros(256, 4, dtype=np.int32), zeros(256, dtype=np.int32), device_num=4,
                      parallel_mode="auto_parallel", search_mode=mode, cluster="a100")
    assert program.parameters["table"].local_shape == (12_500, 64)
    assert program.parameters["moments.table"].local_shape == (12_500, 64)
    assert splits(program, "Gather")[0][0] == (4, 1)



@pytest.fixture
def small_transformer(monkeypatch):
    """The task of a training of one block on 8 devices, whose batch is split, and {name: value} of its parameters."""
    for name, size in dict(WIDTH=512, HEADS=8, SEQUENCE=64, BATCH=64, VOCAB=512).items():
        monkeypatch.setattr(transformer, name, size)
    with no_init_parameters():
        step = transformer.training_step(dtype=ms.float32, layers=1, dropout=0.0)
    ids = Tensor(np.zeros((64, 64), np.int32))
    task = task_of(step, [ids, ids], 8, given=lambda dims: TensorLayout(((0, 1, 2), *[()] * (dims - 1))) if dims else whole(0))
    return task, {p.name: v for p, v in task.graph.parameters.items()}


def test_a_transformer_under_a_memory_limit_gets_megatrons_blocks_and_optimizer_parallel(small_transformer):
    task, parameters = small_transformer
    limit = task.peak(task.completed(parameters_whole=True))[0] * 6 // 10       # data parallel doesn't fit
    found = search(task, "ilp", limit, seconds=60)
    assert found.memory <= limit and found.gap < 0.02
    forward = [found.strategy(n) for n in task.graph.nodes if n.op.name in ("MatMul", "BatchMatMul")][:8]
    query, key, value, score, mix, _, up, down = forward
    (data, _, _), (_, tensor) = up
    assert data * tensor == 8 and data > 1 and tensor > 1
    assert up == ((data, 1, 1), (1, tensor)) and down == ((data, 1, tensor), (tensor, 1))   # by columns, then by rows
    assert query == key == value == up                                                      # heads are columns
    assert score == mix == ((data, tensor, 1, 1), (data, tensor, 1, 1))
    for name in ("blocks.0.w1", "blocks.0.w2", "moment1.blocks.0.w1", "moment2.blocks.0.w2"):
        assert task.mesh.count(kept_in(found.plan, parameters[name]).axes) == 8, name     # in eight pieces, used in `tensor`
