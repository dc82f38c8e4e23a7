"""Drawings: pure functions of what a run left behind, each returns a Picture. One file a drawing; svg.py has what they share."""
from minispore.lab.draw.cache import cache
from minispore.lab.draw.curves import curves
from minispore.lab.draw.graph import graph
from minispore.lab.draw.links import links
from minispore.lab.draw.plan import plan
from minispore.lab.draw.simulated import scaling, simulated
from minispore.lab.draw.slices import slices
from minispore.lab.draw.steps import steps
from minispore.lab.draw.svg import Picture
from minispore.lab.draw.timeline import timeline
from minispore.lab.draw.waits import waits

__all__ = ["Picture", "cache", "curves", "graph", "links", "plan", "scaling", "simulated", "slices", "steps", "timeline", "waits"]
