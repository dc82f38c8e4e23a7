"""The grader: exercises, run in processes of their own, and what they are worth."""
from minispore.grade.points import plain, points

__all__ = ["plain", "points"]
