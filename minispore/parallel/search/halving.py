"""Recursive programming: the devices are halved (or divided by another prime) again and again, and each time every op decides
what the two halves do, as if there were no further division (after MindSpore's search mode of this name).

One mesh axis at a time has few choices, so that also large graphs on many devices take little time. Each division is solved to
its optimum; of all of them together nothing is proved.
"""
from minispore.parallel.complete import Plan
from minispore.parallel.search import eliminate, integer
from minispore.parallel.search.choices import Roles, Space
from minispore.parallel.search.task import Task

SECONDS = 10.0              # that a division may take; then dynamic programming decides it


def halve(task: Task, colours) -> Plan:
    """A plan, axis by axis from the outermost, whose links are the slowest. ValueError, if strategies can't be met together."""
    base: dict[int, Roles] = {}
    axes = task.mesh.axes
    for n in range(max(len(axes), 1)):                  # one device has no axis, but one plan
        space = Space(task, [(a,) for a in axes[n:n + 1]], colours, base, set(axes[:n + 1]))
        choice, bound = integer.decide(space.problem, seconds=SECONDS)
        if choice is None and bound == float("inf"):
            raise ValueError(f"search_mode='recursive_programming': the strategies of the {len(task.graph.nodes)} ops can't be "
                             f"met together on {task.mesh.n} devices: no way leads from one layout to another. Change one")
        if choice is None:
            choice = eliminate.descend(space.problem, eliminate.solve(space.problem)[0])
        base = {colour: space.variables[v][choice[v]].roles for colour, v in space.of_node.items()}
    return space.plan(choice)
