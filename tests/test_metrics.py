"""Metrics: MindSpore's documented values, formulas in plain Python, any cut into batches and ranks, messages."""
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minispore as ms
import minispore.dataset as ds
from minispore import Model, Tensor, nn, ops
from minispore.lab import run_ranks
from minispore.train import (
    F1,
    MAE,
    MSE,
    ROC,
    Accuracy,
    ConfusionMatrix,
    ConfusionMatrixMetric,
    CosineSimilarity,
    Dice,
    Fbeta,
    Loss,
    Metric,
    Perplexity,
    Precision,
    Recall,
    Sum,
    Top1CategoricalAccuracy,
    Top5CategoricalAccuracy,
    TopKCategoricalAccuracy,
    auc,
    get_metric_fn,
    names,
    rearrange_inputs,
)
from minispore.train.metrics.confusion import DECREASE, RATES

# ---- the values of the examples in MindSpore's documents -------------------------------------------------

SCORES, CLASSES = np.array([[0.2, 0.5], [0.3, 0.1], [0.9, 0.6]]), np.array([1, 0, 1])
FIVE = np.array([[0.2, 0.5, 0.3, 0.6, 0.2], [0.1, 0.35, 0.5, 0.2, 0.0], [0.9, 0.6, 0.2, 0.01, 0.3]], np.float32)


@pytest.mark.parametrize(("metric", "inputs", "value"), [
    (Accuracy(), (SCORES.astype(np.float32), CLASSES.astype(np.float32)), 0.6666666666666666),
    (Precision(), (SCORES, CLASSES), [0.5, 1.0]),
    (Recall(), (SCORES, CLASSES), [1.0, 0.5]),
    (Fbeta(1), (SCORES, CLASSES), [2 / 3, 2 / 3]),
    (F1(), (SCORES, CLASSES), [0.66666667, 0.66666667]),
    (TopKCategoricalAccuracy(3), (FIVE, np.array([2, 0, 1])), 0.6666666666666666),
    (Top1CategoricalAccuracy(), (FIVE, np.array([2, 0, 1], np.float32)), 0.0),
    (Top5CategoricalAccuracy(), (FIVE, np.array([2, 0, 1])), 1.0),
    (MAE(), (np.float32([0.1, 0.2, 0.6, 0.9]), np.float32([0.1, 0.25, 0.7, 0.9])), 0.037499990314245224),
    (MSE(), (np.float32([0.1, 0.2, 0.6, 0.9]), np.float32([0.1, 0.25, 0.5, 0.9])), 0.0031250009778887033),
    (Loss(), (np.float32(0.2),), 0.20000000298023224),
    (Perplexity(), (SCORES, CLASSES), 2.231443166940565),
    (Dice(), (SCORES, np.array([[0, 1], [1, 0], [0, 1]])), 0.20467791371802546),
    (ConfusionMatrix(2), (np.array([1, 0, 1, 0]), np.array([1, 0, 0, 1])), [[1, 1], [1, 1]]),
    (ConfusionMatrixMetric(metric_name="tpr"), (np.array([[[0], [1]], [[1], [0]]]), np.array([[[0], [1]], [[0], [1]]])), [0.5]),
    (CosineSimilarity(), (np.array([[1, 3, 4, 7], [2, 4, 2, 5], [3, 1, 5, 8]]),),
     [[0, 0.94025615, 0.95162452], [0.94025615, 0, 0.86146098], [0.95162452, 0.86146098, 0]]),
], ids=lambda x: type(x).__name__ if isinstance(x, Metric) else "")
def test_mindspores_documented_values(metric, inputs, value):
    for form in (Tensor, np.asarray, lambda x: np.asarray(x).tolist()):
        np.testing.assert_allclose(metric(*map(form, inputs)), value, rtol=1e-6)


def test_mindspores_documented_curves():
    fpr, tpr, thresholds = ROC(pos_label=2)(np.array([3, 1, 4, 2]), np.array([0, 1, 2, 3]))
    np.testing.assert_allclose(fpr, [0, 0, 1 / 3, 2 / 3, 1])
    assert tpr.tolist() == [0, 1, 1, 1, 1] and thresholds.tolist() == [5, 4, 3, 2, 1]
    scores = np.array([[0.28, 0.55, 0.15, 0.05], [0.10, 0.20, 0.05, 0.05], [0.20, 0.05, 0.15, 0.05], [0.05, 0.05, 0.05, 0.75]])
    fpr, tpr, thresholds = ROC(class_num=4)(scores, np.array([0, 1, 2, 3]))
    for found, documented in ((fpr, [[0, 0, 1 / 3, 2 / 3, 1], [0, 1 / 3, 1 / 3, 1], [0, 1 / 3, 1], [0, 0, 1]]),
                              (tpr, [[0, 1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 1], [0, 1, 1]]),
                              (thresholds, [[1.28, 0.28, 0.2, 0.1, 0.05], [1.55, 0.55, 0.2, 0.05], [1.15, 0.15, 0.05],
                                            [1.75, 0.75, 0.05]])):
        for a, b in zip(found, documented, strict=True):
            np.testing.assert_allclose(a, b)
    fpr, tpr, _ = ROC(pos_label=2)(np.array([[3, 0, 1], [1, 3, 0], [1, 0, 2]]), np.array([[0, 2, 1], [1, 2, 1], [0, 0, 1]]))
    assert auc(fpr, tpr) == pytest.approx(0.5357142857142857)


# ---- formulas in plain Python -----------------------------------------------------------------------------

def counted(pairs, c):
    """True positives, predicted and actual ones of class c."""
    return (sum(p == y == c for p, y in pairs), sum(p == c for p, _ in pairs), sum(y == c for _, y in pairs))


def pairs_of(x, y):
    return [(max(range(len(row)), key=lambda i: row[i]), int(label)) for row, label in zip(x.tolist(), y, strict=True)]


def share(a, b):
    return a / b if b else 0.0


def all_classes(x, y, f):
    return [f(*counted(pairs_of(x, y), c)) for c in range(x.shape[1])]


# Metrics of scores (N, 5) and classes (N,): how to make one, and its value.
BY_CLASS = {
    "accuracy": (Accuracy, lambda x, y: np.mean([p == q for p, q in pairs_of(x, y)])),
    "precision": (Precision, lambda x, y: all_classes(x, y, lambda true, predicted, actual: share(true, predicted))),
    "recall": (Recall, lambda x, y: all_classes(x, y, lambda true, predicted, actual: share(true, actual))),
    "f1": (F1, lambda x, y: all_classes(x, y, lambda t, p, a: share(2 * share(t, p) * share(t, a), share(t, p) + share(t, a)))),
    "f2": (lambda: Fbeta(2), lambda x, y: all_classes(x, y, lambda t, p, a: share(5 * t, 4 * a + p))),
    "top 3": (lambda: TopKCategoricalAccuracy(3),
              lambda x, y: np.mean([sum(v > row[q] for v in row) < 3 for row, q in zip(x.tolist(), y, strict=True)])),
    "top 1": (Top1CategoricalAccuracy, lambda x, y: np.mean([p == q for p, q in pairs_of(x, y)])),
    "top 5": (Top5CategoricalAccuracy, lambda x, y: 1.0),
    "matrix": (lambda: ConfusionMatrix(5),
               lambda x, y: [[sum(p == (j, i) for p in pairs_of(x, y)) for j in range(5)] for i in range(5)]),
    "matrix target": (lambda: ConfusionMatrix(5, "target"),
                      lambda x, y: [[share(sum(p == (j, i) for p in pairs_of(x, y)), sum(int(q) == i for q in y))
                                     for j in range(5)] for i in range(5)]),
    "matrix all": (lambda: ConfusionMatrix(5, "all"),
                   lambda x, y: [[sum(p == (j, i) for p in pairs_of(x, y)) / len(y) for j in range(5)] for i in range(5)]),
    "perplexity": (Perplexity, lambda x, y: math.exp(-sum(math.log(row[q]) for row, q in zip(x, y, strict=True)) / len(y))),
}


def scored(rows, seed):
    """Scores (rows, 5), no two alike in a row, and classes (rows,)."""
    rng = np.random.default_rng(seed)
    return rng.random((rows, 5)) + 0.01, rng.integers(0, 5, rows).astype(np.int32)


@settings(max_examples=40)
@given(st.integers(1, 30), st.integers(0, 10 ** 6), st.integers(1, 7))
def test_class_metrics_are_their_formulas(rows, seed, batch):
    """And don't depend on how the rows are cut into batches."""
    x, y = scored(rows, seed)
    for make, formula in BY_CLASS.values():
        metric, value = make(), formula(x, y)
        np.testing.assert_allclose(metric(x, y), value, rtol=1e-12)
        np.testing.assert_allclose(metric(x, np.eye(5)[y]) if not isinstance(metric, (ConfusionMatrix, Perplexity))
                                   else value, value, rtol=1e-12)
        metric.clear()
        for i in range(0, rows, batch):
            metric.update(x[i:i + batch], y[i:i + batch])
        np.testing.assert_allclose(metric.eval(), value, rtol=1e-12)
        if isinstance(metric, (Precision, Recall, Fbeta)):
            assert metric.eval(average=True) == pytest.approx(np.mean(value))


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 10 ** 6), st.sampled_from([(), (3,)]))
def test_multilabel_metrics_are_their_formulas(rows, classes, seed, more):
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(0, 2, (rows, classes, *more)) for _ in range(2))
    flat = [a.swapaxes(1, -1).reshape(-1, classes).tolist() for a in (x, y)]        # one line a row and place
    lines = list(zip(*flat, strict=True))
    right = [sum(p and q for p, q in zip(*line, strict=True)) for line in lines]
    precision = [share(r, sum(p)) for r, (p, _) in zip(right, lines, strict=True)]
    recall = [share(r, sum(q)) for r, (_, q) in zip(right, lines, strict=True)]
    assert Accuracy("multilabel")(x, y) == pytest.approx(np.mean([p == q for p, q in lines]))
    for metric, value in ((Precision("multilabel"), precision), (Recall("multilabel"), recall)):
        np.testing.assert_allclose(metric(x, y), value, rtol=1e-12)
        assert metric.eval(True) == pytest.approx(np.mean(value))


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(0, 10 ** 6), st.sampled_from(sorted(DECREASE)), st.booleans())
def test_the_rates_of_each_row_and_class(rows, seed, decrease, skip):
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(0, 2, (rows, 3, 4)) for _ in range(2))
    first = 0 if skip else 1
    table = np.full((rows, 3 - first), np.nan)
    for i in range(rows):
        for c in range(first, 3):
            if y[i, c].any():
                table[i, c - first] = sum(p and q for p, q in zip(x[i, c], y[i, c], strict=True)) / y[i, c].sum()
    def mean(values):
        there = [v for v in values if not np.isnan(v)]
        return np.mean(there) if there else 0.0
    rows_with = [row for row in table if not np.isnan(row).all()]
    expected = {"none": np.nan_to_num(table), "sum": np.nansum(table), "sum_batch": np.nansum(table, 0),
                "sum_channel": np.nansum(table, 1), "mean_batch": [mean(c) for c in table.T],
                "mean_channel": [mean(r) for r in table],
                "mean": np.mean([mean(r) for r in rows_with]) if rows_with else 0.0}[decrease]
    metric = ConfusionMatrixMetric(skip, "recall", True, decrease)
    np.testing.assert_allclose(metric(x, y), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("rate", "formula"), [
    ("tpr", 3 / 7), ("tnr", 5 / 7), ("ppv", 3 / 5), ("npv", 5 / 9), ("fnr", 4 / 7), ("fpr", 2 / 7), ("fdr", 2 / 5),
    ("for", 4 / 9), ("pt", (math.sqrt(3 / 7 * 2 / 7) + 5 / 7 - 1) / (3 / 7 + 5 / 7 - 1)), ("ts", 3 / 9), ("acc", 8 / 14),
    ("ba", (3 / 7 + 5 / 7) / 2), ("f1", 6 / 12), ("mcc", (15 - 8) / math.sqrt(5 * 7 * 7 * 9)),
    ("fm", math.sqrt(3 / 5 * 3 / 7)), ("bm", 3 / 7 + 5 / 7 - 1), ("mk", 3 / 5 + 5 / 9 - 1)])
def test_rates_of_3_true_2_false_positives_5_true_4_false_negatives(rate, formula):
    x = np.repeat([1, 1, 0, 0], [3, 2, 5, 4])[:, None]
    y = np.repeat([1, 0, 0, 1], [3, 2, 5, 4])[:, None]
    assert ConfusionMatrixMetric(metric_name=rate)(x, y) == pytest.approx([formula])
    assert set(RATES) >= {rate} and len(RATES) == 17


def test_perplexity_leaves_a_label_out():
    x, y = scored(9, 1)
    keep = y != 2
    assert Perplexity(ignore_label=2)(x, y) == pytest.approx(Perplexity()(x[keep], y[keep]))


def test_a_threshold_makes_classes_of_scores():
    matrix = ConfusionMatrix(2, threshold=0.3)
    assert matrix([0.1, 0.3, 0.9, 0.2], [0, 1, 0, 1]).tolist() == [[1, 1], [1, 1]]
    assert ConfusionMatrix(2, "prediction")([0, 0, 1], [0, 1, 1]).tolist() == [[0.5, 0], [0.5, 1]]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=12).filter(
    lambda rows: len({p for _, p in rows}) == 2))
def test_the_curve_counts_pairs(rows):
    """The area under a ROC curve is the share of (positive, negative) pairs in the right order, ties by half."""
    scores, positive = (np.array(a) for a in zip(*rows, strict=True))
    fpr, tpr, thresholds = ROC()(scores, positive.astype(int))
    won = [(a > b) + (a == b) / 2 for a in scores[positive] for b in scores[~positive]]
    assert auc(fpr, tpr) == pytest.approx(np.mean(won))
    assert (np.diff(thresholds) < 0).all()
    assert auc(fpr[::-1].copy(), tpr[::-1].copy()) == pytest.approx(np.mean(won))


def test_similarity_forms():
    rows = np.array([[1.0, 0.0], [3.0, 4.0]])
    assert CosineSimilarity("dot", zero_diagonal=False)(rows).tolist() == [[1, 3], [3, 25]]
    assert CosineSimilarity("dot", "sum")(rows).tolist() == [3, 3]
    assert CosineSimilarity("dot", "mean")(rows).tolist() == [1.5, 1.5]


# ---- over ranks ---------------------------------------------------------------------------------------------

class Same(nn.Cell):
    def construct(self, x):
        return x


def cases(rows, seed):
    """(columns, metrics) for one evaluation each."""
    x, y = scored(rows, seed)
    rng = np.random.default_rng(seed + 1)
    bits, more = (rng.integers(0, 2, (rows, 3, 2)) for _ in range(2))
    by_class = {name: make for name, (make, _) in BY_CLASS.items()}
    return {
        "classes": ((x, y), by_class | {"roc": lambda: ROC(class_num=5), "loss": Loss,
                                        "similar": lambda: CosineSimilarity().set_indexes([0])}),
        "one-hot": ((x, np.eye(5)[y]), {"dice": Dice, "mae": MAE, "mse": MSE}),
        "bits": ((bits, more), {name: (lambda f=f: f("multilabel")) for name, f in
                                (("accuracy", Accuracy), ("precision", Precision), ("recall", Recall))} |
                 {f"rate {d}": (lambda d=d: ConfusionMatrixMetric(True, "f1", True, d)) for d in DECREASE} |
                 {"rate": lambda: ConfusionMatrixMetric(False, "mcc")}),
        "scores": ((x[:, 0], y % 2), {"roc": ROC, "matrix": lambda: ConfusionMatrix(2)}),
    }


def evaluate(columns, metrics, per_batch, shuffle=False):
    def program():
        ms.init()
        ms.set_seed(1)
        ms.set_auto_parallel_context(parallel_mode="data_parallel")
        data = ds.NumpySlicesDataset(columns, ["x", "y"], shuffle=shuffle, num_shards=ms.get_group_size(), shard_id=ms.get_rank())
        loss = nn.CrossEntropyLoss() if "loss" in metrics else None
        model = Model(Same(), loss, metrics={name: make() for name, make in metrics.items()})
        try:
            return model.eval(data.batch(per_batch))
        except ValueError as e:
            return str(e)           # a ROC curve needs both kinds: the same message everywhere
    return program


@settings(max_examples=25)
@given(st.integers(1, 23), st.integers(1, 8), st.integers(1, 4), st.sampled_from(["classes", "one-hot", "bits", "scores"]),
       st.integers(0, 1000), st.booleans())
def test_ranks_equal_one_for_every_metric_and_length(rows, n, per_batch, case, seed, shuffle):
    columns, metrics = cases(rows, seed)[case]
    if case == "classes" and len(set(columns[1].tolist())) < 5:
        metrics = {k: v for k, v in metrics.items() if k != "roc"}
    one = run_ranks(evaluate(columns, metrics, per_batch, shuffle), 1)[0]
    for many in run_ranks(evaluate(columns, metrics, per_batch, shuffle), n):
        if isinstance(one, str):
            assert many == one
            continue
        assert set(many) == set(metrics)
        for name in metrics:
            exact = not isinstance(metrics[name](), (Loss, Perplexity, MAE, MSE, Dice))
            for a, b in zip(leaves(one[name]), leaves(many[name]), strict=True):
                np.testing.assert_allclose(b, a, rtol=0 if exact else 1e-12, err_msg=name)


def leaves(x):
    return [leaf for item in x for leaf in leaves(item)] if isinstance(x, (tuple, list)) else [x]


def test_the_cases_have_every_metric():
    """A metric that is added must come into the tests over ranks."""
    tested = {type(make()) for _, metrics in cases(9, 0).values() for make in metrics.values()}
    assert tested == {getattr(ms.train, name) for name in ms.train.metrics.__all__
                      if isinstance(getattr(ms.train.metrics, name), type) and issubclass(getattr(ms.train.metrics, name), Metric)
                      } - {Metric, ms.train.ShardedMetric}


class MyMAE(Metric):
    """The custom metric of MindSpore's documents."""

    def __init__(self):
        super().__init__()
        self.clear()

    def clear(self):
        self._abs_error_sum, self._samples_num, self.rows = 0, 0, []

    @rearrange_inputs
    def update(self, *inputs):
        y_pred, y = self._convert_data(inputs[0]), inputs[1].asnumpy()
        self.rows += y_pred.tolist()
        self._abs_error_sum += np.abs(y - y_pred).sum()
        self._samples_num += y.shape[0]

    def eval(self):
        return self._abs_error_sum / self._samples_num


class MyMergedMAE(MyMAE):
    def clear(self):
        super().clear()
        self._abs_error_sum, self._samples_num = Sum(), Sum()

    def eval(self):
        return self._abs_error_sum.value / self._samples_num.value


def my_evaluation(kind, n):
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel")
        data = ds.NumpySlicesDataset((np.arange(5.0), np.zeros(5)), ["x", "y"], shuffle=False, num_shards=n,
                                     shard_id=ms.get_rank())
        metric = kind()
        return Model(Same(), metrics={"mine": metric}).eval(data.batch(1))["mine"], metric.rows
    return program


def test_a_users_metric_on_one_rank_and_on_several():
    (value, rows), = run_ranks(my_evaluation(MyMAE, 1), 1)
    assert value == 2 and rows == [0, 1, 2, 3, 4]
    with pytest.warns(UserWarning, match="mine can't be added up over the 3 ranks.*Sum and Rows"):
        three = run_ranks(my_evaluation(MyMAE, 3), 3)
    assert [rows for _, rows in three] == [[0, 3], [1, 4], [2]]         # no filling row comes to it
    assert [value for value, _ in three] == [1.5, 2.5, 2]
    assert [value for value, _ in run_ranks(my_evaluation(MyMergedMAE, 3), 3)] == [2, 2, 2]


def test_ranks_with_other_metrics_are_told():
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel")
        data = ds.NumpySlicesDataset((np.ones((4, 2)), np.zeros(4, np.int32)), ["x", "y"]).batch(2)
        Model(Same(), metrics={"accuracy"} if ms.get_rank() else {"recall"}).eval(data)
    with pytest.raises(RuntimeError, match=r"evaluates the metrics \['(accuracy|recall)'\], rank . "):
        run_ranks(program, 2)


def test_a_rank_without_rows_adds_nothing():
    """17 rows over 8 ranks in batches of one: some ranks' last batch is filling throughout."""
    columns, metrics = cases(17, 3)["bits"]
    for result in run_ranks(evaluate(columns, metrics, 1), 8):
        np.testing.assert_array_equal(result["precision"], Precision("multilabel")(*columns))


def test_ranks_may_have_unequal_amounts():
    """Shards cut by hand, as a filter leaves them: other numbers of rows and batches on each rank."""
    x, y = scored(12, 6)
    cut = [slice(0, 7), slice(7, 8), slice(8, 12)]
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel")
        mine = cut[ms.get_rank()]
        metrics = {"recall": Recall(), "loss": Loss(), "roc": ROC(class_num=5)}
        return Model(Same(), nn.CrossEntropyLoss(), metrics=metrics).eval(
            ds.NumpySlicesDataset((x[mine], y[mine]), ["x", "y"], shuffle=False).batch(2))
    for result in run_ranks(program, 3):
        assert result["recall"].tolist() == Recall()(x, y).tolist()
        assert result["loss"] == pytest.approx(float(ops.cross_entropy(Tensor(x), Tensor(y))), rel=1e-12)
        for a, b in zip(leaves(result["roc"]), leaves(ROC(class_num=5)(x, y)), strict=True):
            np.testing.assert_array_equal(a, b)


# ---- eval networks and indexes ------------------------------------------------------------------------------

class Judge(nn.Cell):
    """(loss, label, outputs) of (data, label): the order is the user's."""

    def construct(self, x, y):
        return ops.cross_entropy(x, y), y, x


@pytest.mark.parametrize("n", [1, 3, 4])
@pytest.mark.parametrize("rows", [4, 7])
def test_an_eval_network_with_indexes(n, rows):
    """Its loss is a mean over the batch, so filling rows can't be taken out of it afterwards."""
    x, y = scored(rows, 5)
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="data_parallel")
        data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=False, num_shards=n, shard_id=ms.get_rank()).batch(2)
        metrics = {"loss": Loss(), "acc": Accuracy()}
        return Model(Same(), metrics=metrics, eval_network=Judge(), eval_indexes=[0, 2, 1]).eval(data)
    loss = float(ops.cross_entropy(Tensor(x), Tensor(y)))
    for result in run_ranks(program, n):
        assert result["acc"] == Accuracy()(x, y) and result["loss"] == pytest.approx(loss, rel=1e-12)


def test_filling_that_cant_be_left_out_is_told():
    def program():
        ms.init()
        ms.set_auto_parallel_context(parallel_mode="hybrid_parallel")
        x, y = scored(3, 5)
        data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=False, num_shards=2, shard_id=ms.get_rank()).batch(2)
        Model(Same(), metrics={"acc"}, eval_network=Judge(), eval_indexes=[0, 2, 1]).eval(data)
    with pytest.raises(RuntimeError, match=r"on rank 1 1 rows of a batch only fill the shard.*Judge returns values of shapes"):
        run_ranks(program, 2)


def test_set_indexes_chooses_outputs():
    x, y = scored(6, 2)
    metrics = {"acc": Accuracy().set_indexes([2, 1]), "loss": Loss().set_indexes([0]), "mine": MyMAE().set_indexes([1, 1])}
    with pytest.raises(ValueError, match=r"update got 3 inputs, it takes 2"):
        Accuracy()(x, y, x)
    data = ds.NumpySlicesDataset((x, y), ["x", "y"], shuffle=False).batch(3)
    result = Model(Same(), metrics=metrics, eval_network=Judge()).eval(data)
    assert result["acc"] == Accuracy()(x, y) and metrics["acc"].indexes == [2, 1] and result["mine"] == 0
    assert result["loss"] == pytest.approx(float(ops.cross_entropy(Tensor(x), Tensor(y))))


def test_rearranged_inputs():
    class Example(Metric):
        def clear(self): ...
        @rearrange_inputs
        def update(self, *inputs):
            self.seen = inputs
        def eval(self):
            return self.seen
    assert Example().set_indexes([1, 0])(5, 9) == (9, 5) and Example()(5, 9) == (5, 9)
    with pytest.raises(ValueError, match=r"got 2 inputs, set_indexes\(\[0, 4\]\) asks for number 4"):
        Example().set_indexes([0, 4])(5, 9)


def test_names():
    assert set(names()) >= {"accuracy", "acc", "loss", "mae", "mse", "F1", "top_1_accuracy", "confusion_matrix", "roc", "auc"}
    assert isinstance(get_metric_fn("precision", eval_type="multilabel"), Precision)
    assert get_metric_fn("auc", np.array([0.0, 1.0]), np.array([0.0, 1.0])) == 0.5
    for name in set(names()) - {"auc", "topk", "confusion_matrix"}:
        assert isinstance(Model(Same(), metrics={name})._evaluation.metrics[name], Metric)


def test_valid_marks_rows():
    x, y = scored(8, 4)
    valid = np.arange(8) % 3 > 0
    for make, _ in BY_CLASS.values():
        metric = make()
        metric.update(x, y, valid=valid)
        np.testing.assert_array_equal(metric.eval(), make()(x[valid], y[valid]))
    loss = Loss()
    loss.update(0.5, valid=[True, True, False])
    loss.update([1.0, 2.0, 9.0], valid=[True, True, False])
    assert loss.eval() == pytest.approx((0.5 * 2 + 3) / 4)


TWO = np.zeros((2, 2))


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: Accuracy("binary"), TypeError, "eval_type 'binary' must be 'classification' or 'multilabel'"),
    (lambda: Accuracy()(TWO, TWO), ValueError, r"need labels of shape \(2,\).*one-hot ones of shape \(2, 2\)"),
    (lambda: Accuracy()(TWO, [0, 2]), ValueError, "label 2 is no class; the predictions have the 2 classes 0 … 1"),
    (lambda: Accuracy()(TWO, [0, 0.5]), ValueError, "label 0.5 is no class"),
    (lambda: Recall()(TWO, [0, -1]), ValueError, "label -1 is no class"),
    (lambda: Accuracy("multilabel")(TWO + 0.5, TWO), ValueError, r"predictions must be 0 or 1, they are in 0.5 … 0.5.*threshold"),
    (lambda: Accuracy("multilabel")(TWO, [0, 1]), ValueError, r"must both be \(rows, classes"),
    (lambda: Accuracy().eval(), RuntimeError, "Accuracy: no samples seen"),
    (lambda: Precision().eval(), RuntimeError, "Precision: no samples seen"),
    (lambda: Precision("multilabel").eval(), RuntimeError, "no samples seen"),
    (lambda: ROC().eval(), RuntimeError, "no samples seen"),
    (lambda: Loss().eval(), RuntimeError, "Loss: no samples seen"),
    (lambda: Loss()(1.0, 2.0), ValueError, r"takes 1: the loss.*eval_indexes=\[loss, predictions, labels\]"),
    (lambda: Fbeta(0), ValueError, "beta 0 must be > 0"),
    (lambda: TopKCategoricalAccuracy(0), ValueError, "k 0 must be ≥ 1"),
    (lambda: TopKCategoricalAccuracy(1.5), TypeError, "k 1.5 must be a whole number"),
    (lambda: Top5CategoricalAccuracy()(TWO, [0, 1]), ValueError, "at least k = 5 classes"),
    (lambda: MAE()(TWO, [1.0]), ValueError, r"predictions \(2, 2\) and labels \(1,\) must be of one shape"),
    (lambda: Perplexity(1.5), TypeError, "ignore_label 1.5"),
    (lambda: Perplexity()(TWO, [1]), ValueError, r"need labels of shape \(2,\)"),
    (lambda: Dice(0), ValueError, "smooth 0 must be a number > 0"),
    (lambda: Dice()(TWO, [1]), ValueError, "must be of one shape"),
    (lambda: ConfusionMatrix(2.5), TypeError, "num_classes 2.5"),
    (lambda: ConfusionMatrix(2, "label"), ValueError, "normalize 'label' must be one of"),
    (lambda: ConfusionMatrix(2, threshold=1), TypeError, "threshold 1 must be a float"),
    (lambda: ConfusionMatrix(2)([1, 2], [0, 1]), ValueError, "label 2 is no class"),
    (lambda: ConfusionMatrix(2)([[[1]]], [0]), ValueError, "classes axis behind the first"),
    (lambda: ConfusionMatrixMetric(metric_name="speed"), NotImplementedError, "'speed' is unknown; use one of"),
    (lambda: ConfusionMatrixMetric(decrease="max"), ValueError, "decrease 'max' must be one of"),
    (lambda: ConfusionMatrixMetric(calculation_method=True)(TWO, TWO), ValueError, "use calculation_method=False"),
    (lambda: ConfusionMatrixMetric()(TWO + 2, TWO), ValueError, "predictions must be 0 or 1"),
    (lambda: ROC()([1, 2], [1, 1]), ValueError, "none of the 2 labels is negative"),
    (lambda: ROC(pos_label=3)([1, 2], [1, 1]), ValueError, "none of the 2 labels is positive"),
    (lambda: ROC(3)(TWO, [1, 0]), ValueError, "class_num must be that"),
    (lambda: auc([0, 1], [0, 1]), TypeError, "must be numpy arrays"),
    (lambda: auc(np.array([0, 2, 1]), np.zeros(3)), ValueError, "reorder=True sorts"),
    (lambda: auc(np.zeros(1), np.zeros(1)), ValueError, "needs two points"),
    (lambda: CosineSimilarity("angle"), ValueError, "similarity 'angle' must be one of"),
    (lambda: CosineSimilarity()(TWO, TWO), ValueError, "takes 1: rows"),
    (lambda: Accuracy().set_indexes((0, 1)), ValueError, r"\(0, 1\) must be a list of whole numbers"),
    (lambda: get_metric_fn("speed"), KeyError, "metric 'speed' is unknown; use one of"),
    (lambda: Model(Same(), metrics={"topk"}), ValueError, "'topk' needs arguments"),
    (lambda: Model(Same(), metrics="accuracy"), TypeError, "must be a set of names"),
    (lambda: Model(Same(), metrics={"a": Accuracy}), TypeError, "it must be a Metric object"),
    (lambda: Metric(), TypeError, "abstract"),
    (lambda: MyMAE()(3, Tensor([1.0])), TypeError, "MyMAE: an input is a int; it must be a Tensor, list or array"),
])
def test_messages(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_another_number_of_classes_is_told():
    metric = Recall()
    metric.update(TWO, [0, 1])
    with pytest.raises(ValueError, match=r"values of shape \(3,\) after ones of shape \(2,\).*same number of classes"):
        metric.update(np.zeros((2, 3)), [0, 1])
