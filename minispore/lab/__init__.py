"""The laboratory: ranks inside one process, to try things out and look inside."""
from minispore.lab.ranks import run_ranks

__all__ = ["run_ranks"]
