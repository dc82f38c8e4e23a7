"""init, groups and ranks, under MindSpore's names (`mindspore.communication`)."""
import os
import sys

from minispore.common.errors import CollectiveError
from minispore.common.state import current
from minispore.communication import selection
from minispore.communication.backends.mpi import launched
from minispore.communication.communicator import TAGS, Communicator
from minispore.communication.endpoint import Endpoint
from minispore.communication.record import Record
from minispore.communication.ring import remove_rings

HCCL_WORLD_COMM_GROUP = "hccl_world_group"
NCCL_WORLD_COMM_GROUP = "nccl_world_group"
MCCL_WORLD_COMM_GROUP = "mccl_world_group"
WORLD_NAMES = (HCCL_WORLD_COMM_GROUP, NCCL_WORLD_COMM_GROUP, MCCL_WORLD_COMM_GROUP)
RECORD_FOLDER = "MINISPORE_JOB_RECORD"        # set by msrun's workers: where records go if MINISPORE_RECORD isn't set
BACKENDS = ("hccl", "nccl", "mccl", "mpi", "threads")


class _GlobalComm:
    """What MindSpore keeps in `GlobalComm`; asked of the rank that asks, since thread ranks differ."""

    @property
    def INITED(self) -> bool:
        return current().world is not None

    @property
    def WORLD_COMM_GROUP(self) -> str:
        return HCCL_WORLD_COMM_GROUP

    @property
    def BACKEND(self) -> str:
        return "hccl"


GlobalComm = _GlobalComm()


def init(backend_name: str | None = None) -> None:
    """Join the ranks of this job; the first line of a distributed script.

    Under `msrun`, `mpiexec`, `mpirun` or `srun` the ranks are processes that talk over MPI; inside
    `lab.run_ranks` they are threads. Without a launcher the job has one rank. A second call does nothing.

    Args:
        backend_name: "hccl", "nccl", "mccl" as in MindSpore, or None; on CPU ranks all mean the same.
    """
    state = current()
    if state.world is not None:
        return
    if backend_name is not None and backend_name not in BACKENDS:
        raise ValueError(f"init: backend_name {backend_name!r} is unknown; use one of {BACKENDS}, or nothing")
    if "MS_SIMULATION_LEVEL" in os.environ and state.transport is None:     # thread ranks are there
        state.simulated, (state.launched_rank, state.launched_size) = True, _as_launched()
        if state.stand_in is not None:
            from minispore.communication import imagined  # wanted here only
            state.world, state.groups = imagined.world(state.launched_size, state.launched_rank), {}
        return
    if state.transport is None:
        state.transport = _transport()
    record, everyone = _record(state.transport), tuple(range(state.transport.size))
    if state.transport.size > 1 and state.transport.locality != "threads":     # thread ranks have it from run_ranks
        # By an endpoint of its own: what the ranks tell one another here isn't in the record.
        selection.enter(selection.agreed(Communicator(Endpoint(state.transport), everyone, "selection")))
        state.transport.board.clear()                       # … nor counted
    state.world = Communicator(Endpoint(state.transport, record), everyone, HCCL_WORLD_COMM_GROUP)
    state.groups = {}


def _transport():
    if launched() is not None:
        from minispore.communication.backends.mpi import MpiTransport
        return MpiTransport()
    from minispore.communication.backends.threads import ThreadTransport, World
    if "MINISPORE_QUIET" not in os.environ:
        print("minispore: init() without a launcher, so this job has one rank; for more: msrun --worker_num=4 "
              f"{os.path.basename(sys.argv[0]) or 'script.py'}", file=sys.stderr)
    return ThreadTransport(World(1), 0)


def _record(transport) -> Record:
    """This rank's record: of a process in a file, which survives it, if there is a folder for it."""
    folder = os.environ.get("MINISPORE_RECORD") or os.environ.get(RECORD_FOLDER)
    if not folder or transport.locality == "threads":
        return Record(transport.rank, transport.size)
    try:
        os.makedirs(folder, exist_ok=True)
        if transport.rank == 0:
            remove_rings(folder, transport.size)        # of an earlier, larger job
        return Record(transport.rank, transport.size, os.path.join(folder, f"record_{transport.rank}.ring"))
    except OSError as e:
        if transport.node_rank == 0:
            print(f"minispore: the records of the ranks can't be written to {folder} ({e.strerror}), so they will be lost "
                  "with them; MINISPORE_RECORD names another folder", file=sys.stderr)
        return Record(transport.rank, transport.size)


def leave(failed: bool) -> None:
    """Tell the other ranks that nothing more comes from this one; its record says how it ended."""
    state = current()
    if state.transport is not None:
        state.transport.end(failed)
    if state.world is not None:
        state.world.endpoint.record.finish(failed)


def unreceived(transport) -> CollectiveError | None:
    """What to say when all ranks have ended well, but one has sent something that this one never received."""
    lost = [(source, nbytes) for source, tag, nbytes in transport.unclaimed() if tag >= TAGS]
    if not lost:
        return None
    source, nbytes = lost[0]
    return CollectiveError(f"rank {transport.rank} has ended and never received the message of {nbytes} bytes that rank {source} "
                           "sent it. Every send needs a receive of the same tag, shape and dtype")


def release() -> None:
    """Leave the job; init() may join it again."""
    state = current()
    if state.world is None:
        raise RuntimeError("release(): init() has not been called on this rank; there is nothing to release")
    save_record()
    state.world.endpoint.record.finish(failed=False)
    state.world, state.groups = None, {}


def save_record() -> None:
    """Write this rank's record to the folder MINISPORE_RECORD, if that is set."""
    folder, world = os.environ.get("MINISPORE_RECORD"), current().world
    if folder and world is not None:
        os.makedirs(folder, exist_ok=True)
        world.endpoint.record.save(os.path.join(folder, f"record_{world.rank}.json"))


def get_record():
    """The record of this rank's communications (`communication.record.Record`)."""
    return communicator().endpoint.record


def communicator(group: str | None = None) -> Communicator:
    """The Communicator of a group name."""
    state = current()
    if state.simulated and state.world is None:
        raise RuntimeError(f"group {group or HCCL_WORLD_COMM_GROUP!r}: in a simulation (msrun --sim_level) there are no other "
                           "ranks to communicate with; it shows logical programs, of semi_auto_parallel and auto_parallel. "
                           "minispore simulate script.py runs others too")
    if state.world is None:
        raise RuntimeError(f"group {group or HCCL_WORLD_COMM_GROUP!r} was asked for before init(): call "
                           "minispore.communication.init() first, once, at the top of the script")
    if group is None or group in WORLD_NAMES:
        return state.world
    if not isinstance(group, str):
        raise TypeError(f"group {group!r} is a {type(group).__name__}; a group is named by a string")
    if group not in state.groups:
        known = ", ".join([HCCL_WORLD_COMM_GROUP, *state.groups])
        raise ValueError(f"group {group!r} does not exist on rank {state.world.rank}; there are: {known}. "
                         "Make it with create_group(name, rank_ids) on each of its ranks")
    return state.groups[group]


def get_rank(group: str = HCCL_WORLD_COMM_GROUP) -> int:
    """This rank's number in the group; before init() what the launcher says, else 0."""
    if current().world is None and group in WORLD_NAMES:
        return _as_launched()[0]
    return communicator(group).rank


def get_group_size(group: str = HCCL_WORLD_COMM_GROUP) -> int:
    """Number of ranks in the group; before init() what the launcher says, else 1."""
    if current().world is None and group in WORLD_NAMES:
        return _as_launched()[1]
    return communicator(group).size


def _as_launched() -> tuple[int, int]:
    state = current()
    if state.transport is not None or state.launched_size > 1:
        return state.launched_rank, state.launched_size
    return launched() or (int(os.environ.get("RANK_ID", 0)), int(os.environ.get("RANK_SIZE", 1)))


def create_group(group: str, rank_ids: list[int], options=None) -> None:
    """Make a group of some ranks; every one of them calls this with the same list.

    Raises TypeError for a name that is no string or ranks that are no list, ValueError for a list that is empty, has
    duplicates, ranks that don't exist, or lacks the caller; RuntimeError before init().
    """
    world = communicator()
    if not isinstance(group, str) or not group:
        raise TypeError(f"create_group: the name {group!r} must be a non-empty string")
    if not isinstance(rank_ids, (list, tuple)):
        raise TypeError(f"create_group {group!r}: rank_ids is a {type(rank_ids).__name__}; give a list of ranks")
    if not rank_ids or any(not isinstance(r, int) or not 0 <= r < world.size for r in rank_ids):
        raise ValueError(f"create_group {group!r}: rank_ids {rank_ids} must name at least one rank, all in "
                         f"0 … {world.size - 1}")
    if len(set(rank_ids)) < len(rank_ids):
        raise ValueError(f"create_group {group!r}: rank_ids {rank_ids} name a rank twice; each may be there once")
    if world.rank not in rank_ids:
        raise ValueError(f"create_group {group!r}: rank {world.rank} calls it but is not in {rank_ids}; only the "
                         "group's own ranks create it")
    if group in WORLD_NAMES or group in current().groups:
        raise ValueError(f"create_group: group {group!r} exists already; destroy_group it first, or take another name")
    current().groups[group] = world.split(rank_ids, group)


def destroy_group(group: str) -> None:
    """Forget a group made by create_group. The world group can't be destroyed (ValueError)."""
    if group in WORLD_NAMES:
        raise ValueError(f"destroy_group: {group!r} is the group of all ranks; use release() to leave the job")
    communicator(group).leave()
    del current().groups[group]


def get_process_group_ranks(group: str = HCCL_WORLD_COMM_GROUP) -> list[int]:
    """World ranks of the group, in its order."""
    return list(communicator(group).ranks)


def get_world_rank_from_group_rank(group: str, group_rank_id: int) -> int:
    """World rank of a place in the group."""
    ranks = communicator(group).ranks
    if not 0 <= group_rank_id < len(ranks):
        raise ValueError(f"group {group!r} has ranks 0 … {len(ranks) - 1}, not {group_rank_id}")
    return ranks[group_rank_id]


def get_group_rank_from_world_rank(world_rank_id: int, group: str) -> int:
    """A world rank's place in the group."""
    ranks = communicator(group).ranks
    if world_rank_id not in ranks:
        raise ValueError(f"world rank {world_rank_id} is not in group {group!r} {list(ranks)}")
    return ranks.index(world_rank_id)


def get_local_rank(group: str = HCCL_WORLD_COMM_GROUP) -> int:
    """This rank's number among those of its node."""
    transport = communicator(group).endpoint.transport
    return getattr(transport, "node_rank", transport.rank)


def get_local_rank_size(group: str = HCCL_WORLD_COMM_GROUP) -> int:
    """Number of the job's ranks on this node."""
    transport = communicator(group).endpoint.transport
    return getattr(transport, "node_size", transport.size)


def get_comm_name(group: str = HCCL_WORLD_COMM_GROUP) -> str:
    """The group's own name."""
    return communicator(group).name
