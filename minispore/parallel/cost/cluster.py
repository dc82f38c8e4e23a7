"""Clusters as data: what a card computes, what it keeps, and what the links between cards carry.

Peak figures are the makers'; what programs reach of them is said by two factors, so that both can be seen. This CPU's
figures are measured: `minispore bench calibrate --save cluster.json`, and MINISPORE_CLUSTER=cluster.json uses them.
"""
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from typing import NamedTuple

from minispore.common.state import current
from minispore.parallel.mesh import Mesh

GIGA, TERA = 1e9, 1e12


class Rate(NamedTuple):
    """What an op takes: `overhead` seconds a call, and then as long as its operations or its bytes take, whichever is longer."""
    overhead: float = 0.0
    flops: float = inf          # operations a second
    bytes: float = inf          # bytes read and written a second


@dataclass(frozen=True, eq=False)
class Device:
    """One card, or one CPU rank.

    flops: {bytes of a float: peak operations a second}; bandwidth: bytes a second of its memory; memory: bytes; launch: seconds
    to start an op; reached: the shares of peak operations and of peak bandwidth that programs reach. measured: {op: Rate} on
    float32; what isn't there follows from the other figures. far: bytes a second of what no op has just computed, such as
    parameters, on top of that: they aren't in the caches that `bytes` of a measured Rate is about.
    """
    name: str
    flops: Mapping[int, float]
    bandwidth: float
    memory: float
    launch: float
    source: str
    reached: tuple[float, float] = (0.6, 0.8)
    measured: Mapping[str, Rate] = field(default_factory=dict)
    far: float = inf

    def rate(self, op: str, itemsize: int) -> Rate:
        """An op's rate on floats of so many bytes."""
        if op in self.measured:
            rate = self.measured[op]
            return rate if itemsize == 4 else rate._replace(flops=rate.flops * self.peak(itemsize) / self.peak(4))
        return Rate(self.launch, self.peak(itemsize) * self.reached[0], self.bandwidth * self.reached[1])

    def peak(self, itemsize: int) -> float:
        """Operations a second on floats of so many bytes, or on the next wider ones."""
        return self.flops[min([n for n in self.flops if n >= itemsize] or [max(self.flops)])]


class Link(NamedTuple):
    """Between two cards: `alpha` seconds a message, and bytes a second in one direction."""
    alpha: float
    bandwidth: float


@dataclass(frozen=True, eq=False)
class Cluster:
    """Nodes of `node_size` cards each; ranks are numbered node by node.

    inside, between: the links of a card to others in its node, and of a card to other nodes (each has a port of its own).
    measured: {collective: Link} inside a node, where they were measured one by one. begin: seconds that starting a program's run
    takes. overlap: whether collectives go on while the ranks compute; CPU ranks move the bytes themselves.
    """
    name: str
    device: Device
    node_size: int
    inside: Link
    between: Link
    source: str
    measured: Mapping[str, Link] = field(default_factory=dict)
    begin: float = 0.0
    overlap: bool = True

    def __post_init__(self):
        if not isinstance(self.node_size, int) or self.node_size < 1:
            raise ValueError(f"Cluster {self.name}: node_size={self.node_size} must be a whole number ≥ 1")

    def link(self, op: str, mesh: Mesh, axes: tuple[int, ...]) -> Link:
        """The link that bounds a collective of the ranks along some mesh axes: where nodes cut groups unevenly, the slowest."""
        links = (self.link_between(op, ranks) for ranks in mesh.groups(tuple(axes)))
        return min(links, key=lambda link: (link.bandwidth, -link.alpha))

    def link_between(self, op: str, ranks: Sequence[int]) -> Link:
        """The link that bounds a collective of a group of ranks.

        Every rank has a port to other nodes, and what leaves a node is spread over the ports there, as far as the inner links
        carry it: a ring's two ends, or a part of what each sends to everyone. A message to one rank has one port.
        """
        if len({rank // self.node_size for rank in ranks}) == 1:
            return self.measured.get(op, self.inside)
        share = 1.0 if op in ("permute", "halo") else self.leaving(op, ranks)
        return Link(self.between.alpha, min(self.inside.bandwidth, self.between.bandwidth / share))

    def leaving(self, op: str, ranks: Sequence[int]) -> float:
        """The share of what a group's ranks send that goes to another node: from everyone to everyone, between neighbours in a
        line (halo), and else round a ring that is laid along the nodes.

        >>> CLUSTERS["a100"].leaving("all_reduce", range(16)), CLUSTERS["a100"].leaving("all_to_all", range(16))
        (0.125, 0.5333333333333333)
        """
        n, nodes = len(ranks), Counter(rank // self.node_size for rank in ranks)
        if len(nodes) == 1:
            return 0.0
        if op == "all_to_all":
            return sum(k * (n - k) for k in nodes.values()) / (n * (n - 1))
        return (len(nodes) - 1) / (n - 1) if op == "halo" else len(nodes) / n

    def save(self, path) -> None:
        """Write it as JSON, for MINISPORE_CLUSTER or `cluster=`."""
        Path(path).write_text(plain(asdict(self)) + "\n", encoding="utf-8")

    def __str__(self):
        return f"{self.name} ({self.node_size} a node)"


def plain(data) -> str:
    """Data as JSON that every program reads: what is infinite is null there.

    >>> plain([1.5, inf]).split()
    ['[', '1.5,', 'null', ']']
    """
    return json.dumps(json.loads(json.dumps(data), parse_constant=lambda _: None), indent=1)


A100 = Device("A100 SXM 80 GB", {2: 312 * TERA, 4: 156 * TERA, 8: 19.5 * TERA}, 2039 * GIGA, 80 * GIGA, 5e-6,
              "NVIDIA A100 datasheet (2022): dense BF16, TF32 and FP64 Tensor Core, HBM2e")
H100 = Device("H100 SXM 80 GB", {2: 989 * TERA, 4: 494.5 * TERA, 8: 67 * TERA}, 3350 * GIGA, 80 * GIGA, 5e-6,
              "NVIDIA H100 datasheet (2023): BF16, TF32 without sparsity and FP64 Tensor Core, HBM3")
ASCEND_910 = Device("Ascend 910", {2: 256 * TERA, 4: 16 * TERA}, 1200 * GIGA, 32 * GIGA, 10e-6,
                    "Huawei, Hot Chips 31 (2019): FP16 cube, FP32 taken as the vector units' (32 cores · 256 · 2 · 1 GHz), HBM2")
ASCEND_910B = Device("Ascend 910B", {2: 376 * TERA, 4: 94 * TERA}, 1600 * GIGA, 64 * GIGA, 10e-6,
                     "no datasheet is public; widely published figures: FP16 376 TFLOPS, FP32 94 TFLOPS, HBM2e 64 GB, 1.6 TB/s")
CPU = Device("one CPU core", {4: 100 * GIGA, 8: 50 * GIGA}, 90 * GIGA, 8 * GIGA, 1.1e-6,
             "minispore bench calibrate on a core of an AMD EPYC (Zen 4): products; other ops, in the caches. Measure yours",
             (1.0, 1.0), far=30 * GIGA)

CLUSTERS = {c.name: c for c in (
    Cluster("cpu", CPU, 64, Link(12e-6, 3.5 * GIGA), Link(30e-6, 1.25 * GIGA),
            "minispore bench calibrate: AllReduce of two ranks in shared memory; between nodes 10 Gb/s Ethernet. Measure yours",
            begin=40e-6, overlap=False),
    Cluster("a100", A100, 8, Link(5e-6, 300 * GIGA), Link(10e-6, 25 * GIGA),
            "NVIDIA DGX A100 datasheet: NVLink 600 GB/s both ways, a 200 Gb/s InfiniBand port a card"),
    Cluster("h100", H100, 8, Link(5e-6, 450 * GIGA), Link(10e-6, 50 * GIGA),
            "NVIDIA DGX H100 datasheet: NVLink 900 GB/s both ways, a 400 Gb/s InfiniBand port a card"),
    Cluster("ascend910", ASCEND_910, 8, Link(10e-6, 30 * GIGA), Link(20e-6, 12.5 * GIGA),
            "Huawei, Hot Chips 31 and Atlas 800 (9000): HCCS 240 Gb/s a port, a 100 Gb/s RoCE port a card"),
    Cluster("ascend910b", ASCEND_910B, 8, Link(10e-6, 196 * GIGA), Link(20e-6, 25 * GIGA),
            "Atlas 800T A2 as published: HCCS 392 GB/s both ways, a 200 Gb/s RoCE port a card"),
)}


def cluster_of(what: "str | Cluster | None" = None, node_size: int | None = None) -> Cluster:
    """A cluster by its name in CLUSTERS or its JSON file; None: the one that is simulated, else MINISPORE_CLUSTER, else "cpu".

    >>> cluster_of("a100").device.memory
    80000000000.0
    """
    said = ""
    if what is None and (what := current().cluster) is None:
        what = os.environ.get("MINISPORE_CLUSTER") or "cpu"
        said = "MINISPORE_CLUSTER: "
    if isinstance(what, Cluster):
        found = what
    elif what in CLUSTERS:
        found = CLUSTERS[what]
    elif str(what).endswith(".json"):
        from minispore.parallel.cost.file import load  # it stands above this
        found = load(what)
    else:
        raise ValueError(f"{said}cluster {what!r} is unknown; there are {', '.join(CLUSTERS)}, or give a JSON file that "
                         "minispore bench calibrate --save has written")
    return found if node_size is None else replace(found, node_size=node_size)
