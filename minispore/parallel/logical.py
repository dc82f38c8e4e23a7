"""The passes that make rank programs of a logical graph: annotate, complete, partition.

    rules       each node's equation, bound to its shapes; an op without one is repeated on every rank, with a warning
    checks      the strategies users gave, against those rules
    complete    a layout for every value (complete.py)
    partition   steps on slices and the moves between them (partition.py)
"""
from collections.abc import Callable
from dataclasses import replace

from minispore.common.errors import warn
from minispore.common.parameter import Parameter
from minispore.common.state import current
from minispore.graph.ir import Graph, Node, Value
from minispore.ops.communication import Collective
from minispore.ops.control import Identity
from minispore.ops.elementwise import Cast
from minispore.ops.primitive import Primitive
from minispore.ops.rule import Rule, bind
from minispore.parallel.complete import Completion, Plan
from minispore.parallel.layout import TensorLayout, fits_shape, whole
from minispore.parallel.legality import Check, layouts_of_input
from minispore.parallel.mesh import Mesh
from minispore.parallel.optimizer import Sharding, share_out
from minispore.parallel.partition import Partitioned, partition


def compile_graph(graph: Graph, mesh: Mesh, given: dict[Value, list[TensorLayout]] | None = None,
                  leave: Callable[[Value, TensorLayout], TensorLayout] = lambda v, made: whole(len(v.shape)),
                  sharding: Sharding | None = None, preferred: dict[Value, list[TensorLayout]] | None = None,
                  choose: Callable | None = None, saved: Callable | None = None, **switches) -> Partitioned:
    """A traced and simplified graph, cut for the ranks of a mesh.

    given: layouts in which inputs and parameters exist, the stored one first. leave(value, as it is made): the layout in
    which an output leaves; gradients and new values of parameters leave in that of what they belong to. sharding: how
    optimizer states are shared out. preferred: layouts of parameters of which no strategy says anything. choose: makes the plan
    in the place of completion (search/task.py says of what; `draft`: only to see how optimizer states can be shared out).
    saved(graph, mesh, rules): strategies by op and layouts by parameter that a file says. switches: see Completion.
    """
    inherit(graph)
    rules = {node: rule_of(node) for node in graph.nodes}
    checks = {node: check_of(node, rules[node], mesh) for node in graph.nodes if node.op.strategy is not None}
    given, apart = given or {}, set()
    asked = {**(preferred or {}), **asked_of_parameters(graph, mesh, rules, checks)}
    if saved is not None:
        operators, parameters = saved(graph, mesh, rules)
        checks, asked = operators | checks, parameters | asked
    stored = sharding.stored(graph) if sharding is not None else set()
    used = {v: layouts for v, layouts in given.items() if v not in stored}
    goal = goals(graph)

    def complete(given, apart, draft):
        if choose is not None:
            return choose(graph, mesh, rules, given, checks, goal, leave, apart, draft)
        return Completion(graph, mesh, rules, given, checks, apart, **switches).run()
    plan = complete({**asked, **used}, apart, sharding is not None)
    if sharding is not None:
        shared, apart = share_out(graph, mesh, plan.layout, sharding)
        plan = complete({**asked, **shared, **given}, apart, False)
    return cut_by(graph, plan, goal, leave)


def cut_by(graph: Graph, plan: Plan, goal: dict[Value, Value | TensorLayout],
           leave: Callable[[Value, TensorLayout], TensorLayout]) -> Partitioned:
    """The graph cut as a plan says; the other arguments as in Task (search/task.py)."""
    made = {v: plan.settle.get(v, plan.layout[v]).reduced() for v in graph.outputs}
    return partition(graph, plan, {**{v: leave(v, layout) for v, layout in made.items()}, **leaving(goal, plan)})


def inherit(graph: Graph) -> None:
    """An optimizer's state wants the layout of its parameter; what is made of one gradient alone, value by value (scaled,
    clipped, …), that of the gradient."""
    for p, v in graph.parameters.items():
        v.like = graph.parameters.get(getattr(p, "state_of", None))
    for node in graph.nodes:
        wanting = {v.like for v in node.ins if v.like is not None}
        for out in node.outs:
            if len(wanting) == 1 and all(v.like is None or v.shape == out.shape for v in node.ins):
                out.wants(*wanting)


def goals(graph: Graph) -> dict[Value, Value | TensorLayout]:
    """In whose layout, or in which, results leave: gradients in that of their value, new values of parameters in that of the
    parameter."""
    stored = {*graph.inputs, *graph.parameters.values()}
    out = {v: v.like for v in graph.outputs if v.like in stored and v.like.shape == v.shape}
    for p, v in graph.assigned.items():
        out[v] = graph.parameters[p] if p in graph.parameters else stored_layout(p)
    return out


def leaving(goal: dict[Value, Value | TensorLayout], plan: Plan) -> dict[Value, TensorLayout]:
    """The layouts in which results with a goal leave."""
    return {v: plan.layout[where] if isinstance(where, Value) else where for v, where in goal.items()}


def stored_layout(p: Parameter) -> TensorLayout:
    """How a parameter lies over the ranks outside programs."""
    return p.layout.layout if p.layout is not None else whole(p.ndim)


# ---- rules ----------------------------------------------------------------------------------------------

def rule_of(node: Node) -> Rule:
    """The node's rule; for ops that have none, that everything stays whole."""
    op, shapes = node.op, [v.shape for v in node.ins]
    if isinstance(op, Collective):
        raise TypeError(f"{describe(node)}: a communication op inside a logical program; in semi_auto_parallel and "
                        "auto_parallel the compiler places the collectives. Take it out, or use hybrid_parallel mode, "
                        "in which the script itself communicates")
    foreign = not type(op).__module__.startswith("minispore.") and type(op).rule is Primitive.rule
    rule = None if foreign else op.bound_rule(shapes, [v.shape for v in node.outs])
    if rule is not None:
        return rule
    state = current()
    if op.name not in state.warned:
        state.warned.add(op.name)
        if state.rank == 0:
            warn(f"{describe(node)} has no sharding rule, so it is computed on whole tensors on every rank; give it a "
                 "rule(*shapes) such as '... -> ...' if it works on slices")
    ins = tuple(tuple((f"R{i}_{d}",) for d in range(len(s))) for i, s in enumerate(shapes))
    outs = tuple(tuple((f"S{i}_{d}",) for d in range(len(v.shape))) for i, v in enumerate(node.outs))
    sizes = {f: n for terms, many in ((ins, shapes), (outs, [v.shape for v in node.outs]))
             for term, shape in zip(terms, many, strict=True) for (f,), n in zip(term, shape, strict=True)}
    return Rule(ins, outs, sizes)


def describe(node: Node) -> str:
    """The op, its cell and its line in the user's script."""
    where = " ".join(x for x in (f"of cell {node.scope}" if node.scope else "", f"({node.line})" if node.line else "") if x)
    return f"{node.op.name} {where}".rstrip()


def check_of(node: Node, rule: Rule, mesh: Mesh) -> Check:
    check = Check(describe(node), rule, [v.shape for v in node.ins], node.op.strategy, mesh)
    if check.strategy.ins is not None:
        check.options(list(mesh.axes))
    return check


# ---- parameters ------------------------------------------------------------------------------------------

def parameter_check(p: Parameter, v: Value, mesh: Mesh) -> Check:
    """A parameter's own strategy, as that of an op that keeps every dim."""
    rule = bind("... -> ...", [v.shape], [v.shape])
    return Check(f"parameter {p.name} in parameter_plan", rule, [v.shape], p.strategy, mesh)


def asked_of_parameters(graph: Graph, mesh: Mesh, rules, checks) -> dict[Value, list[TensorLayout]]:
    """The layouts that strategies give to parameters, also through casts and other ops that keep every dim.

    ValueError if two strategies give one parameter different ones. What is computed of a parameter may be moved, so there
    another layout is no fault.
    """
    of_value: dict[Value, Parameter] = {v: p for p, v in graph.parameters.items()}
    asked: dict[Value, tuple[list[TensorLayout], Check]] = {}       # the layouts that suit all, and who asked first
    origin = {v: (v, True) for v in of_value}               # value: (parameter, whether it is the parameter itself)
    for node in graph.nodes:
        if len(node.ins) == 1 and len(node.outs) == 1 and node.ins[0] in origin and rules[node].ins == rules[node].outs:
            parameter, itself = origin[node.ins[0]]
            origin[node.outs[0]] = parameter, itself and isinstance(node.op, (Cast, Identity))
    wishes = [(v, True, parameter_check(p, v, mesh), 0) for p, v in graph.parameters.items() if p.strategy is not None]
    wishes += [(*origin[v], check, i) for node, check in checks.items() if check.strategy.ins is not None
               for i, v in enumerate(node.ins) if v in origin and check.strategy.ins[i] is not None]
    for parameter, itself, check, i in sorted(wishes, key=lambda wish: not wish[1]):
        mine = layouts_of_input(check, i)
        theirs, other = asked.get(parameter, (mine, check))
        both = [layout for layout in theirs if layout in mine]
        if itself and not both:
            raise ValueError(f"parameter {of_value[parameter].name} of shape {parameter.shape} would need two layouts on "
                             f"{mesh.n} devices: {theirs[0]} by {other.where} with strategy {other.strategy}, and "
                             f"{mine[0]} by {check.where} with strategy {check.strategy}. Give both strategies that agree on it")
        asked[parameter] = both or theirs, other
    return {v: layouts[:1] for v, (layouts, _) in asked.items()}


def rows(mesh: Mesh, shape: tuple) -> TensorLayout:
    """Dim 0 split over all devices, or as many as divide it."""
    layout = whole(len(shape))
    for a in mesh.axes:
        wider = replace(layout, dims=((*layout.dims[0], a), *layout.dims[1:])) if shape else layout
        if shape and fits_shape(mesh, shape, wider):
            layout = wider
    return layout
