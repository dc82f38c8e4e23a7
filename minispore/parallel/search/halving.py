"""Recursive programming: the devices are halved (or divided by another prime) again and again, and each time every op decides
what the two halves do, as if there were no further division (after MindSpore's search mode of this name).

One mesh axis at a time has few choices, so that also large graphs on many devices take little time; nothing is proved.
"""
from minispore.parallel.complete import Plan
from minispore.parallel.search.choices import Roles, Space
from minispore.parallel.search.eliminate import descend, solve
from minispore.parallel.search.task import Task

TABLE = 1 << 18             # entries of the tables of one division: it isn't worth more


def halve(task: Task, colours) -> Plan:
    """A plan, axis by axis from the outermost, whose links are the slowest."""
    base: dict[int, Roles] = {}
    for axis in task.mesh.axes or [None]:
        space = Space(task, [] if axis is None else [(axis,)], colours, base)
        choice = descend(space.problem, solve(space.problem, TABLE)[0])
        base = {colour: space.variables[v][choice[v]].roles for colour, v in space.of_node.items()}
    return space.plan(choice)
