"""Search: the plan of auto parallel, over the choices that the ops' rules allow and by the costs of parallel/cost.

    task.py        what is searched: graph, mesh, cluster, what is decided already; what a plan costs, what memory it takes
    alike.py       equal layers make one choice
    choices.py     each op's and value's choices and their costs, as a problem of numbers (problem.py)
    eliminate.py   search_mode="dynamic_programming"
    integer.py     search_mode="ilp": the optimum under a memory limit, with a bound that proves it
    halving.py     search_mode="recursive_programming"
    modes.py       from a task to a plan, by one of them
    explain.py     what was found, as rows and as text; lab/draw/plan.py draws it
"""
from minispore.parallel.search.explain import Found
from minispore.parallel.search.modes import MODES, search
from minispore.parallel.search.task import Task

__all__ = ["MODES", "Found", "Task", "search"]
