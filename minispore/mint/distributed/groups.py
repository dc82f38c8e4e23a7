"""Joining the job, ranks and groups under PyTorch-like names."""
from minispore.common.state import current
from minispore.communication import management

NO_MEMBER = ""              # what new_group returns on ranks outside the group


def init_process_group(backend="hccl", init_method=None, timeout=None, world_size=-1, rank=-1, store=None, pg_options=None,
                       device_id=None) -> None:
    """Join the ranks of this job, as `communication.init` does; a second call does nothing.

    Args:
        backend: "hccl", "nccl" or "mccl"; on CPU ranks all mean the same.
        world_size, rank: checked against what the launcher says; -1 asks nothing.
        The others are MindSpore's and have no effect here.

    Raises ValueError for another backend, number of ranks or rank (MindSpore: `mint.distributed.init_process_group`).
    """
    management.init(backend)
    for what, said, there in (("world_size", world_size, management.get_group_size()), ("rank", rank, management.get_rank())):
        if said not in (-1, None, there):
            raise ValueError(f"init_process_group: {what}={said}, but the launcher gave this process {what} {there}; leave it "
                             "out, or start another number of ranks (msrun --worker_num)")


def destroy_process_group(group=None) -> None:
    """Forget a group made by new_group; None, or the group of all ranks: leave the job."""
    if group is None or group in management.WORLD_NAMES:
        management.release()
    elif group != NO_MEMBER:
        management.destroy_group(group)


def new_group(ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False, group_desc=None) -> str:
    """The name of a new group of these world ranks; all its ranks call this with the same list, others may.

    ranks None: the group of all ranks. Ranks that aren't in the list get "". The other arguments have no effect.
    Raises TypeError for what is no list of ranks, ValueError for ranks that aren't there or twice (MindSpore:
    `mint.distributed.new_group`).

    >>> from minispore.lab import run_ranks
    >>> def program():
    ...     init_process_group()
    ...     evens = new_group([0, 2])
    ...     return get_rank(evens), get_world_size(evens)
    >>> run_ranks(program, 3)
    [(0, 2), (-1, -1), (1, 2)]
    """
    world = management.communicator()
    if ranks is None:
        return management.HCCL_WORLD_COMM_GROUP
    if not isinstance(ranks, (list, tuple)):
        raise TypeError(f"new_group: ranks is a {type(ranks).__name__}; give a list of world ranks")
    ranks = list(ranks)
    # Ranks count only groups of the same members, so that they agree on the name whatever groups each of them has.
    stem, known = f"group_{'_'.join(map(str, ranks))}", current().groups
    name = next(n for n in (f"{stem}.{i}" for i in range(len(known) + 1)) if n not in known)
    if world.rank in ranks or not all(isinstance(r, int) and 0 <= r < world.size for r in ranks) or len(set(ranks)) < len(ranks):
        management.create_group(name, ranks)            # which also says what is wrong with the list
        return name
    return NO_MEMBER


def get_rank(group=None) -> int:
    """This rank's place in the group; -1 on a rank outside it."""
    return -1 if group == NO_MEMBER else management.get_rank(_named(group))


def get_world_size(group=None) -> int:
    """Number of ranks in the group; -1 on a rank outside it."""
    return -1 if group == NO_MEMBER else management.get_group_size(_named(group))


def get_global_rank(group, group_rank) -> int:
    """World rank of a place in the group."""
    return management.get_world_rank_from_group_rank(_named(group), group_rank)


def get_group_rank(group, global_rank) -> int:
    """A world rank's place in the group."""
    return management.get_group_rank_from_world_rank(global_rank, _named(group))


def get_process_group_ranks(group=None) -> list[int]:
    """World ranks of the group, in its order."""
    return management.get_process_group_ranks(_named(group))


def get_backend(group=None) -> str:
    """"hccl", MindSpore's default: on CPU ranks all names mean the same."""
    management.communicator(group)
    return management.GlobalComm.BACKEND


def is_available() -> bool:
    """Whether distributed training is there: always."""
    return True


def is_initialized() -> bool:
    """Whether this rank has joined the job."""
    return management.GlobalComm.INITED


def _named(group) -> str:
    return management.HCCL_WORLD_COMM_GROUP if group is None else group
