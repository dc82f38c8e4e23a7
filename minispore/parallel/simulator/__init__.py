"""The simulator: a rank's program in virtual time on a described cluster.

    events.py       the engine: roles, their two streams, and how they wait for one another
    program.py      a rank's graphs as a role: their events, by the cost model
    timeline.py     what happened when: step time, idle share, exposed communication, bytes by link, memory
    run.py          simulate: a program's Timeline
    efficiency.py   step times on more and more cards
"""
from minispore.parallel.simulator.efficiency import Point, scaling
from minispore.parallel.simulator.run import simulate, simulate_graphs
from minispore.parallel.simulator.timeline import Timeline

__all__ = ["Point", "Timeline", "scaling", "simulate", "simulate_graphs"]
