"""Writes docs/coverage.md: what of MindSpore is here, and how each thing is tested. `python tests/coverage_table.py`"""
import inspect
import json
from pathlib import Path

import numpy as np
from layer_cases import LAYERS
from op_cases import CASES, COMMUNICATION, NOT_DIFFERENTIABLE

import minispore.dataset as ds
from minispore import nn, ops, train
from minispore.dataset import transforms, vision
from minispore.dataset.core import Dataset
from minispore.dataset.samplers import Sampler
from minispore.dataset.transforms import Transform
from minispore.nn.loss import LossBase
from minispore.ops.function import array, creation, math, reduction
from minispore.ops.function import nn as nn_functions
from minispore.ops.primitive import Composite, Primitive

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
HEAD = """# Coverage

What of MindSpore is here, under MindSpore's names (without the `mindspore.` in front). Made by `python tests/coverage_table.py`;
a test fails when it isn't up to date.

- *golden*: values and gradients computed by real MindSpore agree (tests/golden, tests/test_golden.py).
- *gradient*: against difference quotients in float64, drawn by hypothesis, in both modes (tests/test_ops.py,
  tests/test_layers.py, tests/test_communication.py); "none": its values are integers, bools or constants, or nothing flows
  through it.
"""

SEARCH = """
## Auto parallel

| name | what it does here |
|---|---|
| `search_mode="sharding_propagation"` | from the ops with a strategy to all others, with the fewest redistributions |
| `search_mode="dynamic_programming"` | the optimum of the additive cost model, by elimination, where its tables stay small |
| `search_mode="recursive_programming"` | each division of the devices at its optimum, one after the other |
| `search_mode="ilp"` | minispore's own: the optimum under a memory limit, with a bound that proves it |
| `parallel.set_algo_parameters` | fully_use_devices, tensor_slice_align_*, enable_algo_approxi (of ilp) have an effect; \
elementwise_op_strategy_follow is accepted |
| `parallel.get_algo_parameters`, `parallel.reset_algo_parameters` | the same |
| `parallel.set_op_strategy_config` | saves the ops' strategies as JSON, or loads them; in semi-auto parallel too |
| `AutoParallel.save_operator_strategy_file`, `load_operator_strategy_file` | the same for one cell |
"""


def golden_names() -> set[str]:
    """What the cases, whose arrays are there, name: "ops.MatMul"."""
    arrays = np.load(GOLDEN / "ops.npz").files
    def there(stored):
        values = stored.values() if isinstance(stored, dict) else stored
        return stored in arrays if isinstance(stored, str) else all(map(there, values))
    cases = json.loads((GOLDEN / "ops_manifest.json").read_text())["cases"]
    return {c["op"].split("(")[0] for c in cases if there(c["arrays"])}


def classes(module, bases) -> list[str]:
    """Public classes of a module that descend from one of the bases."""
    return sorted(n for n, c in vars(module).items() if inspect.isclass(c) and issubclass(c, bases) and c not in bases)


def table(title: str, head: str, names, gradient=None) -> list[str]:
    """One line a name; `gradient` says what is known of its gradient, None leaves the column out."""
    golden = golden_names()
    lines = [f"\n## {title}\n", f"| name | golden |{' gradient |' if gradient else ''}", f"|---|---|{'---|' if gradient else ''}"]
    for name in names:
        full = f"{head}.{name}"
        lines.append(f"| `{full}` | {'yes' if full in golden else 'no'} |" + (f" {gradient(name)} |" if gradient else ""))
    return lines


def op_gradient(name: str) -> str:
    if name in {case.split("_")[0] for case in CASES} or name in COMMUNICATION - {"Barrier"}:
        return "yes"
    assert name in NOT_DIFFERENTIABLE | {"Barrier"}, name
    return "none"


def functions() -> list[str]:
    names = {n.removesuffix("_") for m in (math, array, creation, reduction, nn_functions) for n in m.__all__}
    return sorted(names - {"check_reduction", "reduced", "unbroadcast"} | {"cross_entropy", "nll_loss"})


def text() -> str:
    layers = [n for n in LAYERS if not issubclass(getattr(nn, n), LossBase)]
    losses = [n for n in LAYERS if issubclass(getattr(nn, n), LossBase)]
    schedules = sorted(n for n in vars(nn) if n.endswith(("_lr", "LR")))
    wrappers = sorted(n for n, c in vars(nn).items() if inspect.isclass(c) and c.__module__.startswith("minispore.nn.wrap"))
    datasets = [*classes(ds, (Dataset,)), *classes(ds, (Sampler,))]
    parts = [HEAD.rstrip()]
    parts += table("Ops", "ops", classes(ops, (Primitive, Composite)), op_gradient)
    parts += table("Functions (their gradients are those of the ops they are made of)", "ops", functions())
    parts += table("Layers", "nn", sorted(layers), lambda name: "yes")
    parts += table("Losses", "nn", sorted(losses), lambda name: "yes")
    parts += table("Optimizers", "nn", classes(nn, (nn.Optimizer,)))
    parts += table("Learning rates", "nn", schedules)
    parts += table("Training wrappers", "nn", wrappers)
    parts += table("Sources and samplers", "dataset", datasets)
    parts += table("Transforms", "dataset.transforms", classes(transforms, (Transform,)))
    parts += table("Vision transforms", "dataset.vision", classes(vision, (Transform,)))
    parts += table("Metrics", "train", classes(train, (train.Metric,)))
    parts += table("Callbacks", "train", classes(train, (train.Callback,)))
    parts += [SEARCH.rstrip()]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "coverage.md").write_text(text())
