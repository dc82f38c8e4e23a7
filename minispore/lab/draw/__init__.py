"""Drawings: pure functions of what a run left behind, each returns a Picture. One file a drawing; svg.py has what they share."""
from minispore.lab.draw.steps import steps
from minispore.lab.draw.svg import Picture

__all__ = ["Picture", "steps"]
