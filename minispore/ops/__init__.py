"""Ops: primitives (one class each) and their functional forms, under MindSpore's names."""
from minispore.common.errors import missing
from minispore.ops.communication import (
    AllGather,
    AllReduce,
    AlltoAll,
    Broadcast,
    Receive,
    Reduce,
    ReduceOp,
    ReduceScatter,
    Send,
)
from minispore.ops.control import Assign, CustomGradient, Identity, StopGradient
from minispore.ops.conv import Conv2D, Conv2DBackpropFilter, Conv2DBackpropInput
from minispore.ops.elementwise import (
    Abs,
    Add,
    Cast,
    Div,
    Equal,
    Exp,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Log,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    Maximum,
    Minimum,
    Mul,
    Neg,
    NotEqual,
    Pow,
    ReLU,
    ReLUGrad,
    Select,
    Sigmoid,
    Sign,
    Sqrt,
    Square,
    Sub,
    Tanh,
)
from minispore.ops.functional import *
from minispore.ops.functional import prod_ as prod
from minispore.ops.functional import softmax_ as softmax
from minispore.ops.indexing import Gather, OneHot, ScatterAdd
from minispore.ops.linear import BiasAdd, Contract, MatMul
from minispore.ops.loss import cross_entropy
from minispore.ops.pool import MaxPool, MaxPoolGather, MaxPoolGrad
from minispore.ops.primitive import Primitive
from minispore.ops.reduce import Argmax, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from minispore.ops.shape import BroadcastTo, Concat, Fill, Reshape, StridedSlice, StridedSliceGrad, Transpose
from minispore.ops.softmax import LogSoftmax, Softmax, SoftmaxCrossEntropyWithLogits, SparseSoftmaxCrossEntropyWithLogits

__getattr__ = missing(__name__, globals())
