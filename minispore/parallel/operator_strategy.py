"""Operator strategy files: how each op of a program was split, so that another run needs no search.

    {"device_num": 4, "parameters": {"fc.weight": ["", "ab"], …}, "ops": {
        "Net.fc/MatMul/0": {"shapes": [[8, 16], [16, 4]], "strategy": [[1, 1], [1, 4]], "axes": {"n": "ab"}}, …}}

An op's name is its cell, its kind, and which of these it is in the cell. The devices are one axis for each prime factor of their
number, "a" the outermost; `axes` says which of them split which factor of the op's sharding rule, and so all its tensors.
`strategy` is the same as `shard` takes it, to be read. A file may be loaded into a changed network: ops whose name and shapes are
in it get their strategy, the others are laid out as without it. Strategies of the script win.
"""
import json
import os
from collections import Counter
from collections.abc import Iterable

from minispore.common.errors import warn
from minispore.common.state import current
from minispore.context import set_auto_parallel_context
from minispore.graph.ir import Graph, Node, Value
from minispore.ops.rule import Rule
from minispore.ops.strategy import Strategy
from minispore.parallel.complete import Plan
from minispore.parallel.layout import TensorLayout, axis_name, fits_shape
from minispore.parallel.legality import Check
from minispore.parallel.mesh import Mesh
from minispore.parallel.sharding import Assignment, as_strategy, fits


def set_op_strategy_config(mode="SAVE", path="") -> None:
    """Save the ops' strategies of auto parallel, or load them (MindSpore: `mindspore.parallel.set_op_strategy_config`).

    Args:
        mode: "SAVE" writes them once a program is compiled, on rank 0; "LOAD" takes them from the file.
        path: a file's name that ends in .json.

    Raises ValueError for another mode, or a name that ends otherwise.

    >>> set_op_strategy_config("SAVE", "strategy.txt")
    Traceback (most recent call last):
    ValueError: set_op_strategy_config: path 'strategy.txt' must end in .json
    """
    if mode not in ("SAVE", "LOAD"):
        raise ValueError(f"set_op_strategy_config: mode={mode!r} must be \"SAVE\" or \"LOAD\"")
    set_auto_parallel_context(**{f"op_strategy_{mode.lower()}_file": json_path(path, "set_op_strategy_config: path")})


def json_path(path, what: str) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{what} is a {type(path).__name__}; give a file's name that ends in .json")
    if not os.fspath(path).endswith(".json"):
        raise ValueError(f"{what} {os.fspath(path)!r} must end in .json")
    return os.fspath(path)


def names(graph: Graph) -> dict[Node, str]:
    """Each op's name in a file."""
    seen: Counter = Counter()
    out = {}
    for node in graph.nodes:
        kind = f"{node.scope}/{node.op.name}"
        out[node] = f"{kind}/{seen[kind]}"
        seen[kind] += 1
    return out


# ---- saved ---------------------------------------------------------------------------------------------------


def described(graph: Graph, plan: Plan) -> dict:
    """What a file says of a program: {"ops": …, "parameters": …}."""
    ops = {}
    for node, name in names(graph).items():
        axes = {f: letters(mine) for f, mine in plan.assignment[node].items() if mine}
        counts = {f: plan.mesh.count(mine) for f, mine in plan.assignment[node].items()}
        shapes = [list(v.shape) for v in node.ins]
        ops[name] = {"shapes": shapes, "strategy": as_strategy(plan.rule[node], counts), "axes": axes}
    return {"ops": ops, "parameters": {p.name: list(map(letters, plan.layout[v].dims)) for p, v in graph.parameters.items()}}


def letters(axes: Iterable[int]) -> str:
    return "".join(map(axis_name, axes))


def keep_operators(known: dict, graph: Graph, plan: Plan, file: str) -> None:
    """Write how a program's ops are split, on rank 0. `known` is what the programs before had, and grows."""
    if not file or current().rank:
        return
    from minispore.train.atomic import write_whole  # stands above; whoever compiles without saving needs none of it
    for part, entries in described(graph, plan).items():
        known.setdefault(part, {}).update(entries)
    write_whole(os.path.abspath(file), [written(plan.mesh.n, known).encode()])


def written(n: int, known: dict) -> str:
    """The file, an op a line."""
    def lines(entries: dict) -> str:
        return ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
    return f'{{"device_num": {n},\n "parameters": {{\n{lines(known["parameters"])}}},\n "ops": {{\n{lines(known["ops"])}}}}}\n'


# ---- loaded --------------------------------------------------------------------------------------------------


class Loaded(Check):
    """An op's strategy that a file says, in the mesh's axes."""

    def __init__(self, where: str, rule: Rule, shapes: list[tuple], mesh: Mesh, assignment: Assignment):
        super().__init__(where, rule, shapes, Strategy(()), mesh)
        self.assignment = assignment

    def options(self, free: list[int]) -> list[Assignment]:
        return [self.assignment] if {a for axes in self.assignment.values() for a in axes} <= set(free) else []


def read_operators(file: str, mesh: Mesh) -> dict:
    """What a file says. FileNotFoundError; ValueError for a file that is something else, or of another number of devices."""
    try:
        with open(file, encoding="utf-8") as f:
            content = json.load(f)
        n, ops, parameters = content["device_num"], dict(content["ops"]), dict(content["parameters"])
        ops = {name: ([tuple(shape) for shape in op["shapes"]], {f: numbers(text) for f, text in op["axes"].items()})
               for name, op in ops.items()}
        parameters = {name: TensorLayout(tuple(map(numbers, dims))) for name, dims in parameters.items()}
    except FileNotFoundError:
        raise FileNotFoundError(f"operator strategy file {file} isn't there; set_op_strategy_config(\"SAVE\", path) or "
                                "AutoParallel.save_operator_strategy_file writes one when a program is compiled") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"{file} is no operator strategy file ({type(e).__name__}: {e}); save it anew") from None
    if n != mesh.n:
        raise ValueError(f"operator strategy file {file} is for {n} devices, this program is for {mesh.n}; search anew, or run "
                         f"on {n}")
    return {"ops": ops, "parameters": parameters}


def numbers(text: str) -> tuple[int, ...]:
    """Axes by their letters."""
    return tuple(ord(letter) - ord(axis_name(0)) for letter in text)


def loaded_checks(file: str, saved: dict, graph: Graph, mesh: Mesh, rules: dict[Node, Rule], where) -> dict[Node, Check]:
    """The strategies of a file for the ops of which it speaks and the script doesn't. where(node): for messages."""
    out, strange = {}, []
    for node, name in names(graph).items():
        shapes = [v.shape for v in node.ins]
        known, axes = saved["ops"].get(name, (None, {}))
        if known != shapes:
            strange.append(name)
        elif node.op.strategy is None:
            rule, used = rules[node], [a for mine in axes.values() for a in mine]
            if not axes.keys() <= rule.sizes.keys() or not set(used) <= set(mesh.axes) or len(set(used)) < len(used) \
                    or not fits(rule, mesh, axes):
                raise ValueError(f"operator strategy file {file}: {name} can't be split by {axes} on {mesh.n} devices for inputs "
                                 f"of shape {shapes}; save the file anew")
            out[node] = Loaded(where(node), rule, shapes, mesh, axes)
    if strange and current().rank == 0:
        warn(f"operator strategy file {file} doesn't know {len(strange)} of the program's {len(graph.nodes)} ops with these "
             f"shapes, such as {strange[0]}; they are laid out as without the file")
    return out


def loaded_parameters(saved: dict, graph: Graph, mesh: Mesh) -> dict[Value, list[TensorLayout]]:
    """Where a file says that parameters lie."""
    lies = {v: saved["parameters"][p.name] for p, v in graph.parameters.items() if p.name in saved["parameters"]}
    return {v: [lay] for v, lay in lies.items() if len(lay.dims) == len(v.shape) and lay.axes <= set(mesh.axes)
            and fits_shape(mesh, v.shape, lay)}
