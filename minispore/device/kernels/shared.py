"""What ranks of one node do in memory they share: meet, and reduce over each other's arrays. Imported when a room opens.

A room is an array of int64 that says where everything lies (communication/room.py). Numba knows no atomic operations, no
addresses and no futex (Linux: sleep until a word of memory changes), so they come first. In a loop, a slice is taken before
it is indexed: `a[lo + i]` would be checked for wrapping round, and not vectorised.
"""
import platform

from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from minispore.device.kernels.jit import kernel

ME, SIZE, MEETING, SPIN, HEAP, HEAP_END, OTHER, CLOCK, PHASE = range(9)     # of a room; then one column of addresses a rank:
FIXED = 16                                                           # FIXED + p: its door; FIXED + SIZE + p: its heap
FLAG, SLEEPERS, HEADERS, STAGES = 0, 8, 128, 256                     # bytes behind a door
CODE, X, OUT = 0, 8, 16                                              # bytes of a header, of which there are two
HEADER, STAGE = 64, 1 << 17                                          # bytes
DONE, WAITING, MISMATCH, PRIVATE = range(4)
BLOCK = 1 << 13                                                      # bytes reduced at a time: they stay in the L1 cache
ONE_SHOT = 1 << 14                                                   # bytes up to which every rank reduces everything
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3}
FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), -1)      # Linux's number of the system call
WAIT, WAKE, ALL = 0, 1, 1 << 30


def _pointer(b, address, bits=64):
    return b.inttoptr(address, ir.IntType(bits).as_pointer())


@intrinsic
def load(typing, address):
    """The int64 at an address; what others wrote before they stored it is seen, too."""
    def make(context, b, signature, args):
        return b.load_atomic(_pointer(b, args[0]), ordering="acquire", align=8)
    return types.int64(types.int64), make


@intrinsic
def load_last(typing, address):
    """As load, and in one order with all `store`s of all ranks."""
    def make(context, b, signature, args):
        return b.load_atomic(_pointer(b, args[0]), ordering="seq_cst", align=8)
    return types.int64(types.int64), make


@intrinsic
def store(typing, address, value):
    """Store an int64; whoever loads it sees all that was written before."""
    def make(context, b, signature, args):
        b.store_atomic(args[1], _pointer(b, args[0]), ordering="seq_cst", align=8)
        return context.get_dummy_value()
    return types.void(types.int64, types.int64), make


@intrinsic
def add(typing, address, value):
    """Add to an int64 in one step."""
    def make(context, b, signature, args):
        return b.atomic_rmw("add", _pointer(b, args[0]), args[1], ordering="seq_cst")
    return types.int64(types.int64, types.int64), make


@intrinsic
def pause(typing):
    """Tell the core that this is a loop that waits."""
    def make(context, b, signature, args):
        if "x86" in b.module.triple or "i686" in b.module.triple:
            b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()
    return types.void(), make


@intrinsic
def address_of(typing, array):
    """Where an array's first element lies."""
    def make(context, b, signature, args):
        return b.ptrtoint(context.make_array(signature.args[0])(context, b, args[0]).data, ir.IntType(64))
    return types.int64(array), make


@intrinsic
def as_pointer(typing, address, array):
    """The address, as a pointer to elements like the array's."""
    def make(context, b, signature, args):
        return b.inttoptr(args[0], context.get_value_type(signature.return_type))
    return types.CPointer(array.dtype)(types.int64, array), make


syscall = types.ExternalFunction("syscall", types.int64(*[types.int64] * 7))


@kernel
def at(address, like, n):
    """The n elements at an address, of like's dtype."""
    return carray(as_pointer(address, like), n)


@kernel
def sleep(address, seen, moment):
    """Sleep while the int64 at the address is `seen`, at most as long as the timespec at `moment` says."""
    syscall(FUTEX, address, WAIT, seen & 0xffffffff, moment, 0, 0)


@kernel
def arrive(room):
    """This rank comes to the room's next meeting: what it wrote before is there for the others to read."""
    room[MEETING] += 1
    door = room[FIXED + room[ME]]
    store(door + FLAG, room[MEETING])
    if load_last(door + SLEEPERS) > 0:
        syscall(FUTEX, door + FLAG, WAKE, ALL, 0, 0, 0)


@kernel
def met(room, patience):
    """Whether all ranks have come to the meeting; patience 0: look; 1: spin; 2: then sleep once for each that lacks."""
    meeting = room[MEETING]
    for p in range(room[SIZE]):
        door = room[FIXED + p]
        seen = load(door + FLAG)
        turns, naps = room[SPIN] if patience > 0 else 0, patience - 1
        while seen < meeting:
            if turns > 0:
                pause()
                turns -= 1
            elif naps > 0:
                add(door + SLEEPERS, 1)
                sleep(door + FLAG, seen, room[CLOCK])
                add(door + SLEEPERS, -1)
                naps -= 1
            else:
                room[OTHER] = p
                return False
            seen = load(door + FLAG)
    return True


@kernel
def announce(room, code, x, out):
    """Write the header of the next meeting: what this rank is about to do, and where its arrays lie in its heap, or -1."""
    header = room[FIXED + room[ME]] + HEADERS + ((room[MEETING] + 1) & 1) * HEADER
    store(header + CODE, code)
    inside = room[HEAP] <= x < room[HEAP_END] and room[HEAP] <= out < room[HEAP_END]
    store(header + X, x - room[HEAP] if inside else -1)
    store(header + OUT, out - room[HEAP] if inside else -1)


@kernel
def header_of(room, p):
    return room[FIXED + p] + HEADERS + (room[MEETING] & 1) * HEADER


@kernel
def agreed(room):
    """Whether all ranks that have met are about to do the same; if not, room[OTHER] is one that isn't."""
    mine = load(header_of(room, room[ME]) + CODE)
    for p in range(room[SIZE]):
        if load(header_of(room, p) + CODE) != mine:
            room[OTHER] = p
            return False
    return True


@kernel
def met_alike(room, patience):
    """DONE, WAITING or MISMATCH: `met` and `agreed`."""
    if not met(room, patience):
        return WAITING
    return DONE if agreed(room) else MISMATCH


@kernel
def combine(op, dst, a, b):
    """dst[i] = a[i] op b[i]; max and min keep a NaN."""
    if op == 0:
        for i in range(dst.shape[0]):
            dst[i] = a[i] + b[i]
    elif op == 1:
        for i in range(dst.shape[0]):
            dst[i] = a[i] * b[i]
    elif op == 2:
        for i in range(dst.shape[0]):
            dst[i] = b[i] if b[i] > a[i] or b[i] != b[i] else a[i]
    else:
        for i in range(dst.shape[0]):
            dst[i] = b[i] if b[i] < a[i] or b[i] != b[i] else a[i]


@kernel
def reduce_rows(op, rows, n, dst):
    """dst = row 0 op row 1 op …, in this order; the rows lie at the n addresses."""
    m = dst.shape[0]
    first = at(rows[0], dst, m)
    if n == 1:
        for i in range(m):
            dst[i] = first[i]
    else:
        combine(op, dst, first, at(rows[1], dst, m))
    for p in range(2, n):
        combine(op, dst, dst, at(rows[p], dst, m))


@kernel
def come(room, code):
    """Come to the next meeting, to do what `code` says."""
    announce(room, code, -1, -1)
    arrive(room)


@kernel
def put(address, value):
    """store, for Python."""
    store(address, value)


@kernel
def share(m, parts, place):
    """[from, to) of a place's part of m elements, at multiples of 16 so that no two ranks write to one cache line."""
    each = ((m + parts - 1) // parts + 15) // 16 * 16
    return min(each * place, m), min(each * place + each, m)


@kernel
def show(room, x):
    """Copy x to where the others find it after the next meeting, and look for it until the one after."""
    shown = at(room[FIXED + room[ME]] + STAGES + ((room[MEETING] + 1) & 1) * STAGE, x, x.shape[0])
    for i in range(x.shape[0]):
        shown[i] = x[i]


@kernel
def reduce_shown(room, rows, op, out):
    """out = the reduction of what all ranks have shown."""
    for p in range(room[SIZE]):
        rows[p] = room[FIXED + p] + STAGES + (room[MEETING] & 1) * STAGE
    reduce_rows(op, rows, room[SIZE], out)


@kernel
def all_in_heaps(room):
    for p in range(room[SIZE]):            # noqa: SIM110  (Numba compiles loops)
        if load(header_of(room, p) + X) < 0:
            return False
    return True


@kernel
def zero_copy(room, rows, block, m, op):
    """This rank's share of all ranks' arrays is reduced, a block at a time, and each block written into all ranks' results.
    Every rank reads and writes as much as one array has, whatever the number of ranks."""
    n, width = room[SIZE], block.itemsize
    lo, hi = share(m, n, room[ME])
    while lo < hi:
        part = block[:min(block.shape[0], hi - lo)]
        for p in range(n):
            rows[p] = room[FIXED + n + p] + load(header_of(room, p) + X) + lo * width
        reduce_rows(op, rows, n, part)
        for p in range(n):
            out = at(room[FIXED + n + p] + load(header_of(room, p) + OUT) + lo * width, block, part.shape[0])
            for i in range(part.shape[0]):
                out[i] = part[i]
        lo += part.shape[0]


@kernel
def all_reduce(room, rows, block, x, out, op, code, patience):
    """AllReduce of flat x into out, as far as it goes without waiting longer than `patience` (see `met`).

    Few bytes: all show theirs, and after one meeting every rank reduces all of them (n·p bytes read). More: two meetings,
    between which zero_copy is done. Returns DONE, WAITING (call again), MISMATCH, or PRIVATE if an array lies outside the
    heaps: then it is algorithms/shared.py's work. rows: int64 (p); block: a block of x's dtype, to work in.
    """
    if room[PHASE] == 0:
        few = x.shape[0] * x.itemsize <= ONE_SHOT
        announce(room, code, address_of(x), address_of(out))
        if few:
            show(room, x)
        arrive(room)
        room[PHASE] = 1 if few else 2
    if not met(room, patience):
        return WAITING
    if room[PHASE] < 3:
        if not agreed(room):
            return MISMATCH
        if room[PHASE] == 1:
            reduce_shown(room, rows, op, out)
        elif all_in_heaps(room):
            zero_copy(room, rows, block, x.shape[0], op)
            come(room, 0)
            room[PHASE] = 3
            if not met(room, patience):
                return WAITING
        else:
            room[PHASE] = 0
            return PRIVATE
    room[PHASE] = 0
    return DONE


@kernel
def flag(room, p):
    """How many meetings a place has come to."""
    return load(room[FIXED + p] + FLAG)
