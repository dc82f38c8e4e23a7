"""Recursive programming: the devices are halved (or divided by another prime) again and again, and each time every op decides
what the two halves do, as if there were no further division (after MindSpore's search mode of this name).

One mesh axis at a time has few choices, so that also large graphs on many devices take little time. Each division is solved to
its optimum; of all of them together nothing is proved.
"""
from minispore.parallel.complete import Plan
from minispore.parallel.search import integer
from minispore.parallel.search.choices import Roles, Space
from minispore.parallel.search.eliminate import eliminate
from minispore.parallel.search.task import Task

PAIRS = 1 << 16             # entries of the tables that are left to the integer program
SECONDS = 10.0              # that a division may take


def halve(task: Task, colours) -> Plan:
    """A plan, axis by axis from the outermost, whose links are the slowest."""
    base: dict[int, Roles] = {}
    for axis in task.mesh.axes or [None]:
        space = Space(task, [] if axis is None else [(axis,)], colours, base)
        done = eliminate(space.problem, most=2, largest=PAIRS)
        some = integer.solve(done.rest, seconds=SECONDS).choice
        if some is None:
            raise ValueError(f"search_mode='recursive_programming': no way was found in {SECONDS:g} s to divide "
                             f"{len(task.graph.nodes)} ops along axis {axis} of {task.mesh.n} devices; one reason can be "
                             "strategies that can't be met together. Take some out, or use search_mode='sharding_propagation'")
        choice = done.complete(some)
        base = {colour: space.variables[v][choice[v]].roles for colour, v in space.of_node.items()}
    return space.plan(choice)
