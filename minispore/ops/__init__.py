"""Ops: primitives (one class each) and their functional forms, under MindSpore's names."""
from functools import partial
from types import FunctionType

from minispore.common.errors import missing
from minispore.ops.communication import (
    AllGather,
    AllReduce,
    AlltoAll,
    Barrier,
    Broadcast,
    NeighborExchange,
    Receive,
    Reduce,
    ReduceOp,
    ReduceScatter,
    Send,
)

from minispore.ops.activation import (      # isort: skip  (communication comes first: it brings the functional forms)
    Elu,
    GeLU,
    HSigmoid,
    HSwish,
    LeakyReLU,
    LogSigmoid,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    ReLUGrad,
    SeLU,
    Sigmoid,
    SiLU,
    Softplus,
    Softsign,
)
from minispore.ops.arrange import (
    ExpandDims,
    MaskedFill,
    OnesLike,
    Range,
    ReverseV2,
    Slice,
    Split,
    Squeeze,
    Stack,
    Tile,
    Tril,
    Triu,
    Unstack,
    ZerosLike,
)
from minispore.ops.compare import (
    Equal,
    Greater,
    GreaterEqual,
    IsFinite,
    IsInf,
    IsNan,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    LogicalXor,
    NotEqual,
    Select,
)
from minispore.ops.control import (
    Assign,
    AssignAdd,
    AssignSub,
    CustomGradient,
    Depend,
    Identity,
    Print,
    StopGradient,
    constexpr,
)
from minispore.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from minispore.ops.elementary import (
    ACos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Ceil,
    ClampedLog,
    Cos,
    Cosh,
    Erf,
    Exp,
    Expm1,
    Floor,
    Log,
    Log1p,
    Log2,
    Reciprocal,
    Round,
    Rsqrt,
    Sin,
    Sinh,
    Sqrt,
    Tan,
    Tanh,
    Trunc,
)
from minispore.ops.elementwise import (
    Abs,
    Add,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Pow,
    Sign,
    Square,
    Sub,
)
from minispore.ops.functional import *
from minispore.ops.functional import prod_ as prod
from minispore.ops.functional import range_ as range
from minispore.ops.functional import slice_ as slice
from minispore.ops.functional import softmax_ as softmax
from minispore.ops.indexing import Gather, OneHot, ScatterAdd
from minispore.ops.linear import BatchMatMul, BiasAdd, Contract, MatMul
from minispore.ops.loss import cross_entropy, nll_loss
from minispore.ops.multitype import HyperMap, Map, MultitypeFuncGraph
from minispore.ops.normalization import BatchNorm, GroupNorm, L2Normalize, LayerNorm, RmsNorm
from minispore.ops.order import ArgSort, CumSum, GatherD, GatherDGrad, Sort, TopK
from minispore.ops.pieces import of_pieces
from minispore.ops.pool import AvgPool, AvgPoolGrad, MaxPool, MaxPoolGather, MaxPoolGrad
from minispore.ops.primitive import Composite, Primitive
from minispore.ops.random import Dropout, Random
from minispore.ops.reduce import (
    Argmax,
    ArgMaxWithValue,
    Argmin,
    ArgMinWithValue,
    ReduceAll,
    ReduceAny,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
)
from minispore.ops.rooted import CollectiveGather, CollectiveScatter
from minispore.ops.shape import BroadcastTo, Concat, Fill, Reshape, StridedSlice, StridedSliceGrad, Transpose
from minispore.ops.sharded import reshard
from minispore.ops.softmax import (
    LogSoftmax,
    NegativeLogLikelihood,
    Softmax,
    SoftmaxCrossEntropyWithLogits,
    SparseSoftmaxCrossEntropyWithLogits,
)

globals().update({name: of_pieces(function) for name, function in globals().items() if isinstance(function, FunctionType)})

__getattr__ = missing(__name__, globals())
