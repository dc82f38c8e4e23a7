"""What ranks of one node do in memory they share: meet, and take from one another's arrays. Imported when a room opens.

A room is an array of int64 that says where everything lies (communication/room.py); a plan is one that says what is to be done
(communication/algorithms/shared.py). `collective` carries it out; the rest of the file is what it consists of.
"""
from numba import carray

from minispore.device.kernels.atomics import (
    ALL,
    FUTEX,
    MONOTONIC,
    WAIT,
    WAKE,
    add,
    address_of,
    as_bytes,
    as_pointer,
    clock_gettime,
    load,
    load_last,
    pause,
    quotient,
    store,
    store_first,
    syscall,
)
from minispore.device.kernels.jit import kernel

# A room: numbers, then four columns of addresses, one a place.
(ME, SIZE, MEETING, SPIN, HEAP, HEAP_END, OTHER, TIMES, SCRATCH, BOARD_STATE, BOARD_DONE, RING, RING_ROWS, RING_LENGTH,
 PHASE, ROW, LOW, SLOT, MY_X, MY_OUT, FIXED) = range(21)
# FIXED + p: p's door; FIXED + SIZE + p: p's heap; FIXED + 2·SIZE + p: from where, FIXED + 3·SIZE + p: where to, for `carry`
BEGIN, MEET, CLOSE, STRIPES = range(4)                              # PHASE
FLAG, COME, GATE, SLEEPERS, HEADERS, STAGES = 0, 64, 128, 136, 256, 512     # bytes behind a door; of the first place's, the gate
CODE, X, OUT = 0, 8, 16                                             # bytes of a header, of which there are two
HEADER, STAGE = 64, 1 << 17                                         # bytes
# A plan: rows 0 and 1, a take, a round.
EVENT, HEAD, TAKES = 0, 1, 2
(FEW, DIRECT, LENGTH, X_FIRST, X_LAST, OUT_FIRST, OUT_LAST, PLACE, ROUNDS, ALIKE, OP) = range(11)
FIRST, LAST, SEGMENT, TO_FIRST, TO_LAST, TO = range(6)
ARRAY, PIECE, ABREAST, SHOW_FIRST, SHOWN, ROUND_TAKES = range(6)
# The record's columns (communication/ring.py), of a row and of its header.
SEQUENCE, BEGUN, ENDED, NUMBER, COLUMNS, EVENTS, SPENT = 1, 7, 8, 15, 16, 4, 13

DONE, WAITING, MISMATCH = range(3)
BLOCK = 1 << 13                                                     # bytes reduced at a time: they stay in the L1 cache
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}


@kernel
def at(address, like, n):
    """The n elements at an address, of like's dtype."""
    return carray(as_pointer(address, like), n)


@kernel
def copy(to, origin, nbytes):
    """Copy bytes from one address to another. (C's memcpy takes ten times as long, on some processors, if the addresses lie a
    little more than a multiple of 4 KiB apart.)"""
    a, b = carray(as_bytes(to), nbytes), carray(as_bytes(origin), nbytes)
    for i in range(nbytes):
        a[i] = b[i]


@kernel
def put(address, value):
    """store, for Python."""
    store(address, value)


@kernel
def flag(room, p):
    """How many meetings a place has come to."""
    return load(room[FIXED + p] + FLAG)


@kernel
def now(room):
    """Nanoseconds."""
    time = at(room[TIMES] + 16, room, 2)
    clock_gettime(MONOTONIC, room[TIMES] + 16)
    return time[0] * 1_000_000_000 + time[1]


# ---- meetings ----------------------------------------------------------------------------------------

@kernel
def arrive(room):
    """This rank comes to the room's next meeting: what it wrote before is there for the others to read. The last one opens the
    gate, before which those wait who sleep. It is counted before its flag shows: who sees all flags, and goes on, would else be
    counted for the next meeting before the last one was for this, and that gate would stay shut."""
    room[MEETING] += 1
    gate = room[FIXED]
    last = add(gate + COME, 1) == room[MEETING] * room[SIZE] - 1
    store(room[FIXED + room[ME]] + FLAG, room[MEETING])
    if last:
        store_first(gate + GATE, room[MEETING])
        if load_last(gate + SLEEPERS) > 0:
            syscall(FUTEX, gate + GATE, WAKE, ALL, 0, 0, 0)


@kernel
def met(room, patience):
    """Whether all ranks have come to the meeting; patience 0: look; 1: spin; 2: then sleep once."""
    turns, until = 0, 0
    for p in range(room[SIZE]):
        while load(room[FIXED + p] + FLAG) < room[MEETING]:
            if turns == 0:
                until = now(room) + (room[SPIN] if patience > 0 else 0)
            if turns & 63 == 0 and now(room) >= until:          # to look at the clock takes as long as many turns
                room[OTHER] = p
                return patience > 1 and slept(room)
            turns += 1
            pause()
    return True


@kernel
def slept(room):
    """Sleep before the gate, at most as long as room[TIMES] says; whether it is open now."""
    gate = room[FIXED]
    seen = load(gate + GATE)
    if seen < room[MEETING]:
        add(gate + SLEEPERS, 1)
        syscall(FUTEX, gate + GATE, WAIT, seen & 0xffffffff, room[TIMES], 0, 0)
        add(gate + SLEEPERS, -1)
        seen = load(gate + GATE)
    return seen >= room[MEETING]


@kernel
def header_of(room, p):
    return room[FIXED + p] + HEADERS + (room[MEETING] & 1) * HEADER


@kernel
def place_of(room, address):
    """Where in this rank's heap an address lies; -1: not there."""
    return address - room[HEAP] if room[HEAP] <= address < room[HEAP_END] else -1


@kernel
def announce(room, plan, x, out, sequence):
    """Write the header of the next meeting: what this rank is about to do, and where its arrays lie in its heap."""
    room[MY_X], room[MY_OUT] = address_of(x), address_of(out)
    if plan[HEAD, PLACE] and not plan[HEAD, FEW] and place_of(room, room[MY_X]) < 0 <= place_of(room, room[MY_OUT]):
        copy(room[MY_OUT], room[MY_X], x.shape[0] * x.itemsize)
        room[MY_X] = room[MY_OUT]
    header = room[FIXED + room[ME]] + HEADERS + ((room[MEETING] + 1) & 1) * HEADER
    store(header + CODE, plan[HEAD, ALIKE] + (sequence << 27))          # ALIKE has 27 bits
    store(header + X, place_of(room, room[MY_X]))
    store(header + OUT, place_of(room, room[MY_OUT]))


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
def reachable(room, plan):
    """Whether all arrays that others would read or write lie in heaps."""
    for p in range(plan[HEAD, X_FIRST], plan[HEAD, X_LAST]):
        if load(header_of(room, p) + X) < 0:
            return False
    for p in range(plan[HEAD, OUT_FIRST], plan[HEAD, OUT_LAST]):        # noqa: SIM110  (Numba compiles loops)
        if load(header_of(room, p) + OUT) < 0:
            return False
    return True


# ---- takes -------------------------------------------------------------------------------------------

@kernel
def combine(op, dst, a, b):
    """dst[i] = a[i] op b[i]; max and min keep a NaN. As everywhere, slices have been taken before they are indexed:
    `a[lo + i]` would be checked for wrapping round, and not vectorised."""
    if op == 0 or op == 4:
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
def carry(room, plan, take, m, like):
    """The m elements at the take's "from" addresses, reduced in order of the ranks, to its "to" addresses. A block at a time,
    so that what was read is not read again from memory when it is written."""
    width, origin, goal = like.itemsize, FIXED + 2 * room[SIZE], FIXED + 3 * room[SIZE]
    first, last = take[FIRST], take[LAST]
    if last - first == 1:
        for d in range(take[TO_FIRST], take[TO_LAST]):
            if room[goal + d] != room[origin + first]:
                copy(room[goal + d], room[origin + first], m * width)
        return
    block, op = at(room[SCRATCH], like, BLOCK // width), plan[HEAD, OP]
    for low in range(0, m, BLOCK // width):
        part = block[:min(BLOCK // width, m - low)]
        n = part.shape[0]
        combine(op, part, at(room[origin + first] + low * width, like, n), at(room[origin + first + 1] + low * width, like, n))
        for s in range(first + 2, last):
            combine(op, part, part, at(room[origin + s] + low * width, like, n))
        if op == 4:
            for i in range(n):
                part[i] = quotient(part[i], room[SIZE])
        for d in range(take[TO_FIRST], take[TO_LAST]):
            copy(room[goal + d] + low * width, room[SCRATCH], n * width)


@kernel
def take_direct(room, plan, like):
    """All of this rank's direct takes."""
    size, me, width, length = room[SIZE], room[ME], like.itemsize, plan[HEAD, LENGTH]
    for t in range(TAKES, TAKES + plan[HEAD, DIRECT]):
        take = plan[t]
        for s in range(take[FIRST], take[LAST]):
            start = room[MY_X] if s == me else room[FIXED + size + s] + load(header_of(room, s) + X)
            room[FIXED + 2 * size + s] = start + take[SEGMENT] * length * width
        for d in range(take[TO_FIRST], take[TO_LAST]):
            start = room[MY_OUT] if d == me else room[FIXED + size + d] + load(header_of(room, d) + OUT)
            room[FIXED + 3 * size + d] = start + take[TO] * length * width
        carry(room, plan, take, min(length, like.shape[0] - take[SEGMENT] * length), like)


@kernel
def stripe(round_, width):
    """How many elements of each of a round's segments are shown at a time."""
    return STAGE // width // round_[ABREAST]


@kernel
def left(room, round_, total, segment, width):
    """How many elements of a segment the stripe at hand has."""
    return min(stripe(round_, width), min(round_[PIECE], total - segment * round_[PIECE]) - room[LOW])


@kernel
def show(room, plan, x, out):
    """Copy a stripe of x or out to where the others find it after the next meeting, and look for it until the one after.
    Of segments of which each is for one rank, that rank's own aren't shown."""
    round_, width = plan[room[ROW]], x.itemsize
    start, total = (room[MY_OUT], out.shape[0]) if round_[ARRAY] else (room[MY_X], x.shape[0])
    stage = room[FIXED + room[ME]] + STAGES + ((room[MEETING] + 1) & 1) * STAGE
    for segment in range(round_[SHOW_FIRST], round_[SHOW_FIRST] + round_[SHOWN]):
        n = left(room, round_, total, segment, width)
        if n > 0 and (round_[ABREAST] == 1 or segment != room[ME]):
            beside = segment * stripe(round_, width) if round_[ABREAST] > 1 else 0
            copy(stage + beside * width, start + (segment * round_[PIECE] + room[LOW]) * width, n * width)


@kernel
def take_shown(room, plan, x, out):
    """A round's takes, as far as the stripe at hand goes."""
    round_, width, size, me = plan[room[ROW]], x.itemsize, room[SIZE], room[ME]
    start, total = (room[MY_OUT], out.shape[0]) if round_[ARRAY] else (room[MY_X], x.shape[0])
    for t in range(room[ROW] + 1, room[ROW] + 1 + round_[ROUND_TAKES]):
        take = plan[t]
        n = left(room, round_, total, take[SEGMENT], width)
        if n > 0:
            beside = take[SEGMENT] * stripe(round_, width) if round_[ABREAST] > 1 else 0
            for s in range(take[FIRST], take[LAST]):
                room[FIXED + 2 * size + s] = room[FIXED + s] + STAGES + (room[MEETING] & 1) * STAGE + beside * width
            room[FIXED + 2 * size + me] = start + (take[SEGMENT] * round_[PIECE] + room[LOW]) * width
            room[FIXED + 3 * size + me] = room[MY_OUT] + (take[TO] * round_[PIECE] + room[LOW]) * width
            carry(room, plan, take, n, x)


@kernel
def next_stripe(room, plan, width):
    """Go on to the next stripe or round; whether there is one."""
    round_ = plan[room[ROW]]
    room[LOW] += stripe(round_, width)
    if room[LOW] >= round_[PIECE]:
        room[ROW] += 1 + round_[ROUND_TAKES]
        room[LOW] = 0
    return room[ROW] < plan.shape[0]


# ---- the record --------------------------------------------------------------------------------------

@kernel
def begin_event(room, plan, sequence):
    """As ring.Ring.begin."""
    header = at(room[RING], room, COLUMNS)
    slot = header[EVENTS]
    address = room[RING_ROWS] + slot % room[RING_LENGTH] * COLUMNS * 8
    row = at(address, room, COLUMNS)
    for i in range(NUMBER):
        row[i] = plan[EVENT, i]
    row[SEQUENCE], row[BEGUN] = sequence, now(room)
    store(address + NUMBER * 8, slot + 1)
    header[EVENTS] = slot + 1
    room[SLOT] = slot


@kernel
def end_event(room):
    """As ring.Ring.end and board.Board.done."""
    row = at(room[RING_ROWS] + room[SLOT] % room[RING_LENGTH] * COLUMNS * 8, room, COLUMNS)
    if row[NUMBER] == room[SLOT] + 1:
        row[ENDED] = now(room)
        at(room[RING], room, COLUMNS)[SPENT] += row[ENDED] - row[BEGUN]
    at(room[BOARD_STATE], room, 1)[0] = 0
    at(room[BOARD_DONE], room, 1)[0] += 1


# ---- all of it ---------------------------------------------------------------------------------------

@kernel
def come(room):
    """Come to the next meeting, of the same collective."""
    store(room[FIXED + room[ME]] + HEADERS + ((room[MEETING] + 1) & 1) * HEADER + CODE, 0)
    arrive(room)


@kernel
def collective(room, plan, x, out, sequence, patience):
    """Go as far as that goes without waiting longer than `patience` (see `met`) at a time. x, out: flat arrays of one dtype.

    DONE; WAITING: call it again, with the same arguments; MISMATCH: all have met, but to do different things.
    """
    if room[PHASE] == BEGIN:
        begin_event(room, plan, sequence)
        announce(room, plan, x, out, sequence)
        room[ROW], room[LOW] = TAKES + plan[HEAD, DIRECT], 0
        if plan[HEAD, FEW] and plan[HEAD, ROUNDS] > 0:
            show(room, plan, x, out)
        arrive(room)
        room[PHASE] = MEET
    if not met(room, patience):
        return WAITING
    if room[PHASE] == MEET:
        if not agreed(room):
            room[PHASE] = BEGIN
            return MISMATCH
        if plan[HEAD, FEW]:
            if plan[HEAD, ROUNDS] > 0:
                take_shown(room, plan, x, out)
        else:
            if reachable(room, plan):
                take_direct(room, plan, x)
                room[PHASE] = CLOSE
            else:
                show(room, plan, x, out)
                room[PHASE] = STRIPES
            come(room)
            if not met(room, patience):
                return WAITING
    while room[PHASE] == STRIPES:
        take_shown(room, plan, x, out)
        if not next_stripe(room, plan, x.itemsize):
            break
        show(room, plan, x, out)
        come(room)
        if not met(room, patience):
            return WAITING
    room[PHASE] = BEGIN
    end_event(room)
    return DONE
