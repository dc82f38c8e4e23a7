"""Graph: ops as boxes and values as lines from above to below, with the collectives marked; of a traced function, or of a program
after one of its passes. Where the boxes go, layers.py says."""
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import pairwise

from minispore.graph.ir import Graph, Node, Value
from minispore.graph.overlap import Start
from minispore.lab.draw.layers import Placed, place
from minispore.lab.draw.svg import Picture, colour, picture, point, rect, tag, text, width_of
from minispore.lab.words import plural, size_of
from minispore.ops.communication import Collective
from minispore.parallel.collectives import Between, operation, sent_values
from minispore.parallel.layout import axis_name, local_shape
from minispore.parallel.redistribution import Move
from minispore.parallel.simulate import PASSES, LocalProgram

MOST, TOP, WIDTH = 80, 76, 880
BOX, ROW, GAP, LABEL = 38.0, 82.0, 26.0, 10.5
MOVES = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter", "all_to_all": "AlltoAll",
         "permute": "Permute", "slice": "slice"}
KINDS = {"op": ("var(--faint)", "var(--edge)"), "value": ("var(--panel)", "var(--line)"),
         "result": ("var(--panel)", "var(--good)"),
         "collective": ("var(--wash)", "var(--strong)"), "slice": ("var(--panel)", "var(--soft)")}


@dataclass
class Box:
    """A box to be drawn. title, sub: its two lines; kind: one of KINDS; ins: (key of a box that a line comes from, its label)."""
    title: str
    sub: str
    kind: str
    ins: list[tuple[Hashable, str]] = field(default_factory=list)


def graph(program, after: str = "partition") -> Picture:
    """The graph of a traced function, or a program after a pass.

    program: a Graph, as trace_call gives it, or a LocalProgram, as minispore.compile does. after: of a LocalProgram one of its
    passes: "trace" and "simplify" show the logical graph, "complete" with a layout for each value, "partition" the steps of all
    ranks, "local" this rank's nodes, "overlap" the same with collectives begun early. Up to 80 boxes; ValueError for more.

    >>> from minispore import Tensor, ops
    >>> from minispore.graph.compile import trace_call
    >>> graph(trace_call(lambda x: ops.tanh(x) * x, Tensor([1.0, 2.0])))
    Picture: A graph of 2 ops. Inputs x0; Tanh (2,); Mul (2,); no collectives.
    """
    if isinstance(program, Graph):
        boxes, head = of_graph(program), "A graph"
    elif isinstance(program, LocalProgram):
        if after not in PASSES:
            raise ValueError(f"draw.graph: {after!r} is no pass; there are {', '.join(PASSES)}")
        boxes, head = DRAWN[after](program), f"After “{after}”"
    else:
        raise TypeError(f"draw.graph: {type(program).__name__} is no graph; give what trace_call or minispore.compile returns")
    if len(boxes) > MOST:
        raise ValueError(f"draw.graph: {len(boxes)} boxes are too many for one picture, {MOST} at most; show() says it as text, "
                         "or draw a part of the network")
    return drawn(boxes, head)


# ---- what becomes a box --------------------------------------------------------------------------------

def of_graph(g: Graph, layouts: dict | None = None) -> dict:
    """The boxes of a graph; layouts: {value: layout} where they are known."""
    def label(v: Value) -> str:
        return str(layouts[v]) if layouts and v in layouts else ""
    boxes = {}
    for v in [*g.inputs, *g.parameters.values()]:
        boxes[v] = Box(repr(v), shape_of(v), "value")
    for node in g.nodes:
        boxes[node] = Box(node.op.name.removesuffix("Over"), said(node), kind_of(node.op),
                          [(v.node or v, label(v)) for v in node.ins if v.node or v in boxes])
    results = {**{v: "result" for v in g.outputs}, **{v: f"new {p.name}" for p, v in g.assigned.items()}}
    for v, name in results.items():
        if v.node or v in boxes:
            boxes["result", v] = Box(name, shape_of(v), "result", [(v.node or v, label(v))])
    return used(boxes)


def of_steps(p: LocalProgram) -> dict:
    """The boxes of the steps that all ranks take; a collective is one of them."""
    cut, boxes, maker = p.cut, {}, {}
    names = {v: repr(v) for v in (*cut.graph.inputs, *cut.graph.parameters.values())}

    def source(held):
        if held in maker:
            return maker[held]
        if held.value in names:
            key = "value", held.value, held.layout
            if key not in boxes:
                boxes[key] = Box(names[held.value], str(local_shape(cut.mesh, held.value.shape, held.layout)), "value")
            maker[held] = key
            return key
        return None
    for step in cut.steps:
        ins = [(key, str(held.layout)) for held in step.ins if (key := source(held)) is not None]
        key = "step", len(boxes)
        if isinstance(step.do, Move):
            boxes[key] = move_box(step, cut.mesh, ins)
        else:
            shape = local_shape(cut.mesh, step.outs[0].value.shape, step.outs[0].layout)
            sub = " ".join(filter(None, (short(step.do.scope), str(shape))))
            boxes[key] = Box(step.do.op.name, sub, kind_of(step.do.op), ins)
        maker.update(dict.fromkeys(step.outs, key))
    goals = [*(("result", held) for held in cut.results[:len(cut.graph.outputs)]),
             *((f"new {p.name}", held) for p, held in zip(cut.graph.assigned, cut.results[len(cut.graph.outputs):], strict=True))]
    for i, (name, held) in enumerate(goals):
        if (key := source(held)) is not None:
            shape = local_shape(cut.mesh, held.value.shape, held.layout)
            boxes["result", i] = Box(name, str(shape), "result", [(key, str(held.layout))])
    return used(boxes)


def move_box(step, mesh, ins) -> Box:
    """A move: its name, the axes along which it goes, and how many bytes a rank sends."""
    move = step.do
    along = "".join(map(axis_name, move.axes))
    if move.op == "slice":
        return Box("slice", f"along {along}", "slice", ins)
    sent = 0
    for held, out in zip(step.ins, step.outs, strict=True):
        op = operation(mesh, move, 0, held.value.shape)
        sent += sent_values(op, local_shape(mesh, out.value.shape, out.layout)) * held.value.dtype.itemsize
    return Box(MOVES[move.op], f"along {along} · {size_of(sent)} sent", "collective", ins)


def kind_of(op) -> str:
    return "collective" if isinstance(op, Between | Collective | Start) else "op"


def said(node: Node) -> str:
    """The second line of an op's box."""
    shape = shape_of(node.outs[0]) if node.outs else ""
    if isinstance(node.op, Between):
        sent = sum(sent_values(node.op, v.shape) * v.dtype.itemsize for v in node.outs)
        ranks = ",".join(map(str, node.op.ranks[:8])) + (" …" if len(node.op.ranks) > 8 else "")
        return f"ranks {ranks} · {size_of(sent)}"
    return " ".join(filter(None, (short(node.scope), shape)))


def shape_of(v: Value) -> str:
    return str(tuple(v.shape))


def short(scope: str) -> str:
    """The last two parts of a cell's name."""
    return ".".join(scope.split(".")[-2:])


def used(boxes: dict) -> dict:
    """Without inputs that nobody reads."""
    read = {key for box in boxes.values() for key, _ in box.ins}
    return {key: box for key, box in boxes.items() if box.kind != "value" or key in read}


DRAWN = {"trace": lambda p: of_graph(p.logical), "simplify": lambda p: of_graph(p.logical),
         "complete": lambda p: of_graph(p.logical, p.cut.plan.layout), "partition": of_steps,
         "local": lambda p: of_graph(p.graph), "overlap": lambda p: of_graph(p.scheduled)}


# ---- drawing -------------------------------------------------------------------------------------------

def drawn(boxes: dict, head: str) -> Picture:
    """The picture of all boxes."""
    leaving = {}                                        # box: the layouts of what it gives, one for all readers as a rule
    for box in boxes.values():
        for source, label in box.ins:
            leaving.setdefault(source, {})[label] = None
    common = {key: next(iter(labels)) for key, labels in leaving.items() if len(labels) == 1}
    wide = {key: max(84.0, 22 + width_of(b.title, 13), 22 + width_of(b.sub, 11), width_of(common.get(key, ""), LABEL))
            for key, b in boxes.items()}
    placed = place({key: [source for source, _ in box.ins] for key, box in boxes.items()}, wide, GAP)
    width = max(WIDTH, placed.width + 60)
    left = (width - placed.width) / 2
    at = {key: (left + x, TOP + BOX / 2 + level * ROW) for key, (x, level) in placed.at.items()}
    ops = [b for b in boxes.values() if b.kind in ("op", "collective", "slice")]
    marked = [b for b in boxes.values() if b.kind == "collective"]
    kinds = dict.fromkeys(b.title for b in marked)
    note = ", ".join(f"{sum(b.title == kind for b in marked)} {kind}" for kind in kinds) or "no collectives"
    body = [text(22, 32, f"{head}: {plural(len(ops), 'op')}", 17, font_weight=600),
            text(22, 54, note, 12.5, fill="var(--strong)" if marked else "var(--soft)", font_weight=600 if marked else None)]
    labels = []
    for key, box in boxes.items():
        for source, label in dict.fromkeys(box.ins):
            stops = way(source, key, at, placed, left)
            body.append(edge(stops))
            if source not in common:
                (x0, _), (x1, y1) = stops[-2:]
                labels.append((x1 + 0.2 * (x0 - x1), y1 - 12, label))
    body += [box_of(b, *at[key], wide[key]) for key, b in boxes.items()]
    body += [ground(at[key][0], at[key][1] + BOX / 2 + 8, label) for key, label in common.items() if label]
    body += apart(labels)
    names = [b.title for b in boxes.values() if b.kind == "value"]
    words = f"Inputs {', '.join(names)}; " if names else ""
    words += "; ".join(f"{b.title} {b.sub}".strip() for b in ops)
    return picture(width, TOP + placed.levels * ROW - (ROW - BOX) + 26, body, f"{head} of {plural(len(ops), 'op')}",
                   f"{words}; {note}.")


def box_of(b: Box, x: float, y: float, w: float) -> str:
    fill, stroke = KINDS[b.kind]
    strong = b.kind == "collective"
    round_ = BOX / 2 if b.kind in ("value", "result") else 8
    parts = [rect(x - w / 2, y - BOX / 2, w, BOX, fill, stroke, round_, stroke_width=2.2 if strong else 1.2,
                  stroke_dasharray="4 3" if b.kind == "slice" else None),
             text(x, y - 7 if b.sub else y, b.title, 13, "middle", "var(--strong)" if strong else "var(--ink)", font_weight=600),
             text(x, y + 9, b.sub, 11, "middle", "var(--soft)") if b.sub else ""]
    return tag("g", "".join(parts), class_=f"node {b.kind}")


def way(source, key, at, placed: Placed, left: float) -> list[tuple[float, float]]:
    """The points that a line from a box to one below goes through, round the boxes in between."""
    (x0, y0), (x1, y1) = at[source], at[key]
    return [(x0, y0 + BOX / 2), *((left + x, TOP + BOX / 2 + level * ROW) for x, level in placed.bends[source, key]),
            (x1, y1 - BOX / 2 - 5)]


def edge(stops: list[tuple[float, float]]) -> str:
    """A line through these points, with a tip."""
    path = f"M{point(stops[0])}"
    for (ax, ay), (bx, by) in pairwise(stops):
        middle = (ay + by) / 2
        path += f"C{point((ax, middle))} {point((bx, middle))} {point((bx, by))}"
    x, y = stops[-1]
    tip = f"M{point((x - 4, y - 2))}L{point((x, y + 4))}L{point((x + 4, y - 2))}Z"
    return tag("g", tag("path", d=path, fill="none", stroke="var(--soft)", stroke_width=1.4)
               + tag("path", d=tip, fill="var(--soft)"), class_="edge")


def ground(x: float, y: float, label: str) -> str:
    """The label of a line, on a ground of its own."""
    w = width_of(label, LABEL) + 8
    return (rect(x - w / 2, y - 7, w, 14, "var(--panel)", rx=4, fill_opacity=0.9)
            + text(x, y, label, LABEL, "middle", colour(0), class_="layout"))


def apart(labels: list[tuple[float, float, str]]) -> list[str]:
    """Labels of lines; one that would lie on another is moved to the right."""
    done, parts = [], []
    for x, y, label in sorted(labels):
        w = width_of(label, LABEL) + 8
        for a, b, c in done:
            if abs(y - c) < 14:
                x = max(x, a + (w + b) / 2)
        done.append((x, w, y))
        parts.append(ground(x, y, label))
    return parts
