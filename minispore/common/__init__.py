"""What everything else stands on: tensors, parameters, dtypes, initial values, random numbers, a rank's state."""
from minispore.common import dtype, initializer
from minispore.common.parameter import Parameter, ParameterTuple
from minispore.common.seed import get_seed, set_seed
from minispore.common.tensor import Tensor

__all__ = ["Parameter", "ParameterTuple", "Tensor", "dtype", "get_seed", "initializer", "set_seed"]
