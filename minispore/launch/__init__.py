"""Starting ranks as processes, watching over them, and ending them all when one fails.

    msrun (this terminal) ── mpiexec ── its proxy ─┬─ worker, rank 0 ── log file ── read by msrun
              │                                    └─ worker, rank 1 ── log file ── read by msrun
              └───────────── the line: every worker's connection to msrun ─────────────┘
"""
