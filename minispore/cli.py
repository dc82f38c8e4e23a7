"""The command `minispore`."""
import argparse
import os
import sys


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):      # what a terminal's encoding lacks mustn't be an error
            stream.reconfigure(errors="backslashreplace")
    p = parser()
    o, unknown = p.parse_known_args(argv)
    if unknown:
        p.error(f"unrecognized arguments: {' '.join(unknown)}{getattr(o, 'hint', '')}")
    try:
        code = o.command(o) or 0
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("minispore: interrupted", file=sys.stderr)
        return 128 + 2                          # as a shell says of SIGINT
    except BrokenPipeError:                     # `minispore … | head`: nobody wants to know more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13                         # as a shell says of SIGPIPE


def parser() -> argparse.ArgumentParser:
    """One function below for each command."""
    p = argparse.ArgumentParser(
        "minispore", allow_abbrev=False, description="MindSpore's distributed training, small enough to "
        "read. To start a script on several ranks: msrun --worker_num=4 script.py")
    p.add_argument("--version", action="version", version=version())
    commands = p.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="train LeNet on several ranks, and compare with one")
    demo.add_argument("-n", type=int, default=4, metavar="N", help="ranks (4)")
    demo.add_argument("--mnist", action="store_true", help="on MNIST, fetched by pip, not the shipped digits")
    demo.set_defaults(command=show_demo)

    run = commands.add_parser("run", help="run a script: as a rank under mpirun, mpiexec or srun, else alone",
                              usage="minispore run [-n N] [--as-mindspore] script.py [its arguments]")
    run.add_argument("-n", type=int, metavar="N", help="start N ranks, as msrun does (1)")
    run.add_argument("--as-mindspore", action="store_true",
                     help="`import mindspore` means minispore, even if both are there")
    run.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    run.set_defaults(command=run_script)

    add_simulate(commands.add_parser("simulate", help="a script on a cluster that isn't there: step time, what is idle, bytes",
                                     usage="minispore simulate [options] [--] script.py [its arguments]", allow_abbrev=False))

    data = commands.add_parser("data", help="write a folder of data in MNIST's format")
    data.add_argument("name", choices=("digits", "mnist"),
                      help="digits: 1,797, shipped; mnist: 70,000, by pip")
    data.add_argument("--out", required=True, metavar="DIR", help="the folder")
    data.set_defaults(command=write_data)

    learn = commands.add_parser("learn", help="set up a folder with the notebooks and exercises, and open JupyterLab in it")
    learn.add_argument("folder", nargs="?", metavar="FOLDER", help="the course you are in, else ./minispore-course")
    learn.add_argument("--reset", metavar="e05", help="put this exercise back as it was; your answer is kept beside it")
    learn.add_argument("--no-browser", action="store_true", help="only print the address")
    learn.add_argument("--setup-only", action="store_true", help="don't open JupyterLab")
    learn.set_defaults(command=open_course)

    add_grade(commands.add_parser("grade", help="grade exercises: your own, a file, or a class"))

    doctor = commands.add_parser("doctor", help="what is installed, and do two ranks find each other?")
    doctor.set_defaults(command=examine)

    bench = commands.add_parser("bench", help="measure this machine").add_subparsers(required=True, metavar="WHAT")
    add_collectives(bench.add_parser("collectives", help="our collectives beside MPI's own, gloo's and a copy in memory"))
    calibrate = bench.add_parser("calibrate", help="what ranks compute and send in a second, for auto parallel's cost model")
    calibrate.add_argument("-n", type=int, default=2, metavar="N", help="ranks (2)")
    calibrate.add_argument("--save", nargs="?", const="cluster.json", metavar="FILE.json",
                           help="write it as a cluster, for MINISPORE_CLUSTER (cluster.json)")
    calibrate.add_argument("--seconds", type=float, default=20.0, metavar="S",
                           help="to measure for, after the start; below 5 only small networks (20)")
    calibrate.set_defaults(command=bench_calibrate)
    trace = commands.add_parser("trace", help="draw the communication of a job, from the records in its log folder")
    trace.add_argument("folder", metavar="LOGDIR", help="msrun's --log_dir, or MINISPORE_RECORD's folder")
    trace.add_argument("-o", dest="out", metavar="FILE", help="the drawing (LOGDIR/trace.json)")
    trace.add_argument("--table", action="store_true", help="print each rank's communication instead")
    trace.set_defaults(command=draw)

    hang = commands.add_parser("hang", help="where the ranks of a job wait, and for whom; also after a kill")
    hang.add_argument("folder", metavar="LOGDIR", help="msrun's --log_dir, or MINISPORE_RECORD's folder")
    hang.set_defaults(command=explain_hang)
    return p


def add_simulate(p) -> None:
    p.description = ("Run a training script, unchanged, as rank 0 of cards that aren't there (as each rank, where they send one "
                     "another different messages), for a few steps (values are zeros; a PYNATIVE_MODE script is taken as if in "
                     "GRAPH_MODE), and its training step in virtual time.")
    p.add_argument("program", nargs="+", metavar="script.py", help="and its arguments; -- before it, if they have dashes")
    p.add_argument("--cards", type=whole, default=8, metavar="N", help="ranks, 1 to 4096 (8)")
    p.add_argument("--cluster", metavar="NAME",
                   help="cpu, a100, h100, ascend910, ascend910b, or a JSON file (MINISPORE_CLUSTER's, else cpu)")
    p.add_argument("--node-size", type=whole, metavar="K", help="cards of a node (the cluster's)")
    p.add_argument("--trace", metavar="FILE.json", help="write the timeline for ui.perfetto.dev")
    p.add_argument("--svg", metavar="FILE.svg", help="draw the timeline and the memory")
    p.add_argument("--json", metavar="FILE.json", help="write the figures")
    p.add_argument("--curve", action="store_true", help="also on 1, 2, 4 … cards: step times and efficiency")
    p.add_argument("--as-mindspore", action="store_true", help=argparse.SUPPRESS)
    p.set_defaults(command=simulate_script, hint=". If they are the script's, put -- before it: minispore simulate --cards 8 -- "
                   "script.py --epochs 5")


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number; give one, such as 8") from None


def add_grade(p) -> None:
    p.description = "Grade exercises, each in a process of its own. Exit code 0: all points, or a class was graded."
    p.add_argument("what", nargs="*", metavar="e05 | FILE.py", help="exercises, or files with answers (all in your folder)")
    p.add_argument("--folder", metavar="CLASS", help="all submissions there: STUDENT/e05.py, STUDENT_e05.py …")
    p.add_argument("--csv", metavar="FILE", help="write a row a submission ('-': to the standard output)")
    p.add_argument("--json", metavar="FILE", help="write all there is to know")
    p.add_argument("--junit", metavar="FILE", help="write JUnit's XML")
    p.add_argument("--hint", type=int, metavar="N", help="show this hint of the exercise, and grade nothing")
    p.add_argument("--timeout", type=float, default=4.0, metavar="S", help="seconds a test may take (4)")
    p.add_argument("--memory", type=int, default=1024, metavar="MB", help="memory a submission may take (1024)")
    p.add_argument("--who", default="", metavar="NAME", help="whose it is, for the report")
    p.add_argument("--private", action="append", default=[], metavar="DIR", help="a folder that it may not read")
    p.set_defaults(command=grade_exercises)


def add_collectives(p) -> None:
    p.add_argument("-n", type=int, default=2, metavar="N", help="ranks (2)")
    p.add_argument("--sizes", default="", metavar="4,64K,16M", help="bytes of the whole vector (4 … 64M, each 4 times the last)")
    p.add_argument("--op", default="all", metavar="OP", 
                   help="all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, with commas between (all)")
    p.add_argument("--algorithms", default="all", metavar="NAMES",
                   help="shared, private (arrays), ring …, mpi, gloo, copy (all); mpi always takes part")
    p.add_argument("--seconds", type=float, default=0.3, metavar="S", help="for each op, size and algorithm (0.3)")
    p.add_argument("--csv", metavar="FILE", help="write all numbers there")
    p.add_argument("--plot", metavar="FILE.png", help="draw them; takes matplotlib")
    p.add_argument("--save", nargs="?", const="algorithms.json", metavar="FILE",
                   help="write what was fastest as a selection table (algorithms.json)")
    p.set_defaults(command=bench_collectives)


def grade_exercises(o) -> int:
    from minispore.grade import command
    return command.main(o)


def version() -> str:
    import minispore
    return f"minispore {minispore.__version__}"


def show_demo(o) -> int:
    from minispore import demo
    return demo.main(o.n, o.mnist)


def run_script(o) -> int:
    from minispore.launch import run
    return run.main(o.program, o.n, o.as_mindspore)


def simulate_script(o) -> int:
    from minispore.launch import simulate

    def draw(line):
        from minispore.lab.draw import simulated
        return simulated(line)
    return simulate.main(o, draw)


def write_data(o) -> int:
    from minispore.dataset import download
    write = {"digits": download.write_digits, "mnist": download.write_mnist}[o.name]
    try:
        files = write(o.out)
    except (OSError, ImportError, RuntimeError) as e:
        print(f"minispore data: {e}", file=sys.stderr)
        return 1
    print(f"wrote {len(files)} files to {o.out}")
    return 0


def draw(o) -> int:
    from minispore.communication import record, trace
    try:
        records = record.load_folder(o.folder)
        if o.table:
            print("\n\n".join(f"rank {r.rank}\n{r.table()}" for r in records))
            return 0
        out = o.out or os.path.join(o.folder, "trace.json")
        trace.save(records, out)
    except (OSError, ValueError) as e:
        print(f"minispore trace: {e}", file=sys.stderr)
        return 1
    print(f"wrote {out}; open it at ui.perfetto.dev, or in Chrome at chrome://tracing")
    return 0


def explain_hang(o) -> int:
    from minispore.communication import hang, record
    try:
        print(hang.report(record.load_folder(o.folder)))
    except (OSError, ValueError) as e:
        print(f"minispore hang: {e}", file=sys.stderr)
        return 1
    return 0


def open_course(o) -> int:
    from minispore import learn
    return learn.main(o.folder, o.reset, not o.no_browser, o.setup_only)


def examine(o) -> int:
    from minispore.launch import doctor
    return doctor.main()


def bench_collectives(o) -> int:
    from minispore.bench import collectives
    return collectives.main(o.n, o.sizes, o.op, o.algorithms, o.seconds, o.csv, o.plot, o.save)


def bench_calibrate(o) -> int:
    from minispore.bench import calibrate
    return calibrate.main(o.n, o.save, o.seconds)


if __name__ == "__main__":
    sys.exit(main())
