"""Communication between ranks: init and groups here; algorithms, record and backends in the modules beside."""
from minispore.common.errors import missing
from minispore.communication.management import (
    HCCL_WORLD_COMM_GROUP,
    MCCL_WORLD_COMM_GROUP,
    NCCL_WORLD_COMM_GROUP,
    GlobalComm,
    communicator,
    create_group,
    destroy_group,
    get_comm_name,
    get_group_rank_from_world_rank,
    get_group_size,
    get_local_rank,
    get_local_rank_size,
    get_process_group_ranks,
    get_rank,
    get_record,
    get_world_rank_from_group_rank,
    init,
    release,
)

__all__ = [
    "HCCL_WORLD_COMM_GROUP", "MCCL_WORLD_COMM_GROUP", "NCCL_WORLD_COMM_GROUP", "GlobalComm", "communicator",
    "create_group", "destroy_group", "get_comm_name", "get_group_rank_from_world_rank", "get_group_size",
    "get_local_rank", "get_local_rank_size", "get_process_group_ranks", "get_rank", "get_record",
    "get_world_rank_from_group_rank", "init", "release",
]

__getattr__ = missing(__name__, globals(), {"comm_func": "minispore.communication.comm_func"})     # it stands above ops
