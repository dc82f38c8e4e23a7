"""The command `msrun`: run a script on several ranks of this machine."""
import sys

from minispore.launch import options
from minispore.launch.supervisor import Supervisor


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    return Supervisor(options.parse(argv)).run()


if __name__ == "__main__":
    sys.exit(main())
