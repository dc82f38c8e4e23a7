"""Layers, ops, losses and optimizers against the values real MindSpore computed (tests/golden/README.md).

MINISPORE_GOLDEN names another folder with cases of the same kinds. Cases of ops that minispore doesn't have yet are left
out; the last test says how many there are.
"""
import json
import os
from pathlib import Path

import numpy as np
import pytest

import minispore as ms
from minispore import Parameter, Tensor, nn, ops

FOLDER = Path(os.environ.get("MINISPORE_GOLDEN", Path(__file__).parent / "golden"))
ARRAYS = np.load(FOLDER / "ops.npz")
CASES = json.loads((FOLDER / "ops_manifest.json").read_text())["cases"]
MODULES = {"nn": nn, "ops": ops}
OPTIMIZERS = {"SGD", "Momentum", "Adam", "AdamWeightDecay", "AdaMax", "Adadelta", "Adagrad", "FTRL", "Lamb", "ProximalAdagrad",
              "RMSProp", "Rprop"}


def target(case):
    """The class or function a case names, or None."""
    module, name = case["op"].split("(")[0].split(".")
    return getattr(MODULES[module], name, None)


# MindSpore's CPU rounds tanh(5.016) = 0.99991 up to 1, and so its gradient down to 0.
IMPRECISE = {"nn_Tanh": 2e-4}


def present(stored):
    """Whether all arrays a case names are in the file."""
    if isinstance(stored, dict):
        return all(map(present, stored.values()))
    return all(map(present, stored)) if isinstance(stored, list) else stored in ARRAYS


def runnable(case):
    return target(case) is not None


HERE = [c for c in CASES if runnable(c)]
LISTS = [c for c in HERE if c["op"].endswith("_lr")]
OPS = [c for c in HERE if c["op"].split(".")[1] not in OPTIMIZERS and c not in LISTS]
# The optimizers' arrays are named by the shipped manifest but are not in its ops.npz (test_optim has their formulas).
STEPS = [c for c in HERE if c["op"].split(".")[1] in OPTIMIZERS and present(c["arrays"])]


def arrays(case, prefix):
    return {k[len(prefix):]: ARRAYS[v] for k, v in case["arrays"].items() if k.startswith(prefix)}


def build(case, inputs):
    """A function of the inputs, and the layer (None for ops)."""
    thing, args = target(case), {k: tuple(v) if isinstance(v, list) else v for k, v in case["args"].items()}
    positional = args.pop("positional", ())
    if case["op"].startswith("nn."):
        train = args.pop("train", None)
        args.pop("default_init", None)
        for name in ("weight", "pos_weight"):
            if name in args:
                args[name] = Tensor(np.array(args[name], np.float32))
        layer = thing(*positional, **args)
        if train is not None:
            layer.set_train(train)
        for name, value in arrays(case, "param_").items():
            layer.parameters_dict()[name].set_data(Tensor(value))
        return layer, layer
    if case["op"] in TUPLES:
        return lambda *xs: thing(xs, **args), None
    if not isinstance(thing, type):
        return lambda *xs: thing(*xs, *positional, **args), None
    known = (*getattr(thing, "call_attributes", ()), *CALL_ARGUMENTS.get(case["op"], ()))
    extra = [args.pop(k) for k in ("axis", "depth", "k", "multiples", "shape", "begin", "size") if k in args and k in known]
    extra += [1.0, 0.0] if case["op"] == "ops.OneHot" else []
    return lambda *xs: thing(*positional, **args)(*xs, *extra), None


TUPLES = {"ops.clip_by_global_norm", "ops.Stack", "ops.stack", "ops.Concat", "ops.concat", "ops.cat"}     # they take a tuple
# What composites take after their tensors (primitives say it themselves).
CALL_ARGUMENTS = {"ops.TopK": ("k",), "ops.Tile": ("multiples",), "ops.ExpandDims": ("axis",), "ops.Slice": ("begin", "size")}


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize("case", OPS, ids=lambda c: c["name"])
def test_op(case, mode):
    ms.set_context(mode=mode)
    stored, inputs = case["arrays"], arrays(case, "in_")
    close = {"rtol": case["rtol"], "atol": IMPRECISE.get(case["name"], case["atol"])}
    f, layer = build(case, inputs)
    xs = [Tensor(v) for v in inputs.values()]
    out = f(*xs)
    for name, o in zip(sorted(k for k in stored if k.startswith("out")), out if isinstance(out, (tuple, list)) else [out],
                       strict=False):
        np.testing.assert_allclose(o.asnumpy(), ARRAYS[stored[name]], **close)
        assert o.dtype == ARRAYS[stored[name]].dtype
    if "upstream" in stored:
        wanted = [i for i, name in enumerate(inputs) if f"grad_in_{name}" in stored]
        weights = [layer.parameters_dict()[k] for k in arrays(case, "grad_param_")] if layer is not None else []
        upstream = Tensor(ARRAYS[stored["upstream"]])
        grads = ms.grad(lambda *xs: ops.sum(first(f(*xs)) * upstream), tuple(wanted), weights)(*xs)
        for i, g in zip(wanted, grads[0], strict=True):
            np.testing.assert_allclose(g.asnumpy(), ARRAYS[stored[f"grad_in_{list(inputs)[i]}"]], **close)
        for name, g in zip(arrays(case, "grad_param_"), grads[1], strict=True):
            np.testing.assert_allclose(g.asnumpy(), arrays(case, "grad_param_")[name], **close)
    for name, value in arrays(case, "after_").items():         # what one call, or two with the gradient's, left behind
        state = layer.parameters_dict().get(name.removeprefix("moving_"))
        np.testing.assert_allclose(state.asnumpy(), value, **close, err_msg=name)


def first(out):
    return out[0] if isinstance(out, tuple) else out


@pytest.mark.parametrize("case", LISTS, ids=lambda c: c["name"])
def test_learning_rates(case):
    args = dict(case["args"])
    rates = target(case)(*args.pop("positional", ()), **args)
    np.testing.assert_allclose(rates, ARRAYS[case["arrays"]["out"]], rtol=case["rtol"], atol=case["atol"])


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize("case", STEPS, ids=lambda c: c["name"])
def test_optimizer(case, mode):
    ms.set_context(mode=mode)
    args, stored = dict(case["args"]), case["arrays"]
    params = {k: Parameter(ARRAYS[v], name=k) for k, v in stored["init"].items()}
    groups = args.pop("groups", None)
    chosen = [{**g, "params": [params[k] for k in g["params"]]} for g in groups] if groups else list(params.values())
    optimizer = target(case)(chosen, *args.pop("positional", ()), **args)
    worst = 0.0
    for i, grads in enumerate(stored["grads"]):
        optimizer([Tensor(ARRAYS[grads[p.name]]) for p in optimizer.parameters])
        for name, p in params.items():
            worst = max(worst, float(np.abs(p.asnumpy() - ARRAYS[stored["after"][f"step{i}_{name}"]]).max()))
    if case.get("expect") == "differs":             # MindSpore's CPU ignores use_nesterov; ours is the textbook's
        assert worst > 1e-3
        return
    assert worst < 1e-5
    for name, where in stored["state_after_4"].items():
        state = optimizer.parameters_dict().get(name)
        if state is not None and name != "momentum":
            np.testing.assert_allclose(state.asnumpy(), ARRAYS[where], rtol=1e-4, atol=1e-5, err_msg=name)


def test_how_many_cases_run():
    assert len(OPS) >= 81 or Path(__file__).parent / "golden" != FOLDER
