"""The command `msrun`: run a script on several ranks of this machine."""
import os
import signal
import sys

from minispore.launch import alias, environment, options, processes, script
from minispore.launch.supervisor import Supervisor


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    if not processes.end_with_parent_named(signal.SIGINT):
        return 128 + signal.SIGINT
    job = options.parse(argv)
    return Supervisor(job).run() if job.simulated_rank is None else simulate(job)


def simulate(job: options.Job) -> int:
    """Run the script in this process, as one rank of a job that isn't there."""
    os.environ.update(environment.for_rank(job.simulated_rank, job.ranks), MS_SIMULATION_LEVEL="0")
    alias.install(job.as_mindspore)
    return script.run(job.script, job.args)


if __name__ == "__main__":
    sys.exit(main())
