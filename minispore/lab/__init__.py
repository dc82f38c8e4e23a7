"""The laboratory: ranks inside one process, to try things out and look inside."""
from minispore.lab import draw
from minispore.lab.explore import explore
from minispore.lab.ranks import run_ranks
from minispore.lab.watch import watch

__all__ = ["draw", "explore", "run_ranks", "watch"]
