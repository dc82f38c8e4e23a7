"""What Numba lacks for memory that processes share: atomic operations, addresses, futexes (Linux: sleep until a word of memory
changes) and the clock. For shared.py, which is to be changed too, if only in a comment, when this file is: see jit.py.
"""
import platform

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), -1)      # Linux's number of the system call
WAIT, WAKE, ALL = 0, 1, 1 << 30
MONOTONIC = 1                                                           # the clock of time.perf_counter_ns


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
    """As load, and in one order with all `store_first`s and `add`s of all ranks."""
    def make(context, b, signature, args):
        return b.load_atomic(_pointer(b, args[0]), ordering="seq_cst", align=8)
    return types.int64(types.int64), make


def _store(ordering):
    def make(context, b, signature, args):
        b.store_atomic(args[1], _pointer(b, args[0]), ordering=ordering, align=8)
        return context.get_dummy_value()
    return types.void(types.int64, types.int64), make


@intrinsic
def store(typing, address, value):
    """Store an int64; whoever loads it sees all that was written before."""
    return _store("release")


@intrinsic
def store_first(typing, address, value):
    """As store, and before this rank loads anything more."""
    return _store("seq_cst")


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


@intrinsic
def as_bytes(typing, address):
    """The address, as a pointer to bytes."""
    def make(context, b, signature, args):
        return b.inttoptr(args[0], context.get_value_type(signature.return_type))
    return types.CPointer(types.uint8)(types.int64), make


@intrinsic
def quotient(typing, a, n):
    """a / n, whole numbers towards zero. (Numba's `/` would make floats of them, which have 53 bits.)"""
    def make(context, b, signature, args):
        kind, (value, count) = signature.args[0], args
        if isinstance(kind, types.Float):
            return b.fdiv(value, b.sitofp(count, value.type))
        wide, signed = ir.IntType(64), getattr(kind, "signed", False)
        if value.type.width < 64:
            value = b.sext(value, wide) if signed else b.zext(value, wide)
        found = b.sdiv(value, count) if signed else b.udiv(value, count)
        return found if args[0].type.width == 64 else b.trunc(found, args[0].type)
    return a(a, types.int64), make


syscall = types.ExternalFunction("syscall", types.int64(*[types.int64] * 7))
clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))
