"""Normalisations as cells (MindSpore: `mindspore.nn.layer.normalization`)."""
from minispore import ops
from minispore.common import dtype as mstype
from minispore.common.initializer import initializer
from minispore.common.parameter import Parameter
from minispore.common.state import LOCAL_MODES, current
from minispore.communication.management import HCCL_WORLD_COMM_GROUP, communicator, create_group, get_rank
from minispore.nn.cell import Cell
from minispore.nn.layer.checks import positive
from minispore.ops.normalization import move
from minispore.ops.primitive import wide


class _BatchNorm(Cell):
    """Normalises each channel (dim 1) over all other dims (Ioffe and Szegedy, 2015).

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: moving = momentum · moving + (1 - momentum) · batch; the moving variance is the unbiased one.
        affine: learn gamma and beta.
        gamma_init, beta_init, moving_mean_init, moving_var_init: what `initializer` takes.
        use_batch_statistics: None: the batch's in training, the moving ones in evaluation; True or False: always, never.

    In data parallel each rank normalises by its own shard, as in MindSpore; SyncBatchNorm by the whole batch.
    """
    dims = ()           # how many dims x may have

    def __init__(self, num_features, eps=1e-5, momentum=0.9, affine=True, gamma_init="ones", beta_init="zeros",
                 moving_mean_init="zeros", moving_var_init="ones", use_batch_statistics=None, data_format="NCHW",
                 dtype=mstype.float32):
        super().__init__()
        positive(type(self).__name__, num_features=num_features)
        if not 0 <= momentum <= 1 or not eps > 0:
            raise ValueError(f"{type(self).__name__}: momentum {momentum} must be in 0 … 1 and eps {eps} > 0")
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.use_batch_statistics = use_batch_statistics
        def made(init, name, learned):
            return Parameter(initializer(init, (num_features,), dtype), name=name, requires_grad=learned)
        self.moving_mean = made(moving_mean_init, "mean", False)
        self.moving_variance = made(moving_var_init, "variance", False)
        self.gamma, self.beta = made(gamma_init, "gamma", affine), made(beta_init, "beta", affine)

    def construct(self, x):
        if x.ndim not in self.dims or x.shape[1] != self.num_features:
            raise ValueError(f"{type(self).__name__}(num_features={self.num_features}): x has shape {x.shape}; it takes "
                             f"{' or '.join(map(str, self.dims))} dims with {self.num_features} channels in dim 1")
        own = self.training if self.use_batch_statistics is None else self.use_batch_statistics
        return self.normalise(x) if own else ops.batch_norm(x, self.moving_mean, self.moving_variance, self.gamma, self.beta,
                                                            False, eps=self.eps)

    def normalise(self, x):
        """By the batch's statistics; the moving ones follow."""
        return ops.batch_norm(x, self.moving_mean, self.moving_variance, self.gamma, self.beta, True, 1 - self.momentum, self.eps)

    def extend_repr(self):
        return f"num_features={self.num_features}, eps={self.eps}, momentum={self.momentum}"


class BatchNorm1d(_BatchNorm):
    __doc__ = _BatchNorm.__doc__.replace("(dim 1)", "(dim 1) of x (n, c) or (n, c, l)")
    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    __doc__ = _BatchNorm.__doc__.replace("(dim 1)", "(dim 1) of x (n, c, h, w)")
    dims = (4,)


class BatchNorm3d(_BatchNorm):
    __doc__ = _BatchNorm.__doc__.replace("(dim 1)", "(dim 1) of x (n, c, d, h, w)")
    dims = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation by the statistics of all ranks' shards together (MindSpore: `nn.SyncBatchNorm`).

    Args: as BatchNorm2d, without use_batch_statistics' default; process_groups: a list of lists of ranks that belong
    together, None: all ranks.

    Shards may differ in length. In stand-alone, semi-auto and auto mode the tensor is whole anyway.
    """
    dims = (2, 3, 4, 5)

    def __init__(self, num_features, eps=1e-5, momentum=0.9, affine=True, gamma_init="ones", beta_init="zeros",
                 moving_mean_init="zeros", moving_var_init="ones", use_batch_statistics=None, process_groups=None,
                 dtype=mstype.float32):
        super().__init__(num_features, eps, momentum, affine, gamma_init, beta_init, moving_mean_init, moving_var_init,
                         use_batch_statistics, dtype=dtype)
        self.group = HCCL_WORLD_COMM_GROUP
        for ranks in process_groups or ():
            if get_rank() in ranks:
                self.group = "sync_batch_norm_" + "_".join(map(str, ranks))
                create_group(self.group, list(ranks))

    def normalise(self, x):
        if current().parallel["parallel_mode"] not in LOCAL_MODES or communicator(self.group).size == 1:
            return super().normalise(x)
        dtype, x = x.dtype, wide(x)
        total, axes = ops.AllReduce("sum", self.group), (0, *range(2, x.ndim))
        c = self.num_features
        # Two messages: the variance about the common mean is exact where E[x²] - mean² would cancel.
        sums = total(ops.concat((ops.reshape(ops.sum(x, axes), (c,)), ops.full((1,), x.size // c, dtype=x.dtype))))
        count = sums[c:]
        mean = sums[:c] / count
        shape = (-1, *(1,) * (x.ndim - 2))
        centred = x - ops.reshape(mean, shape)
        variance = total(ops.sum(ops.square(centred), axes)) / count
        move((self.moving_mean, self.moving_variance), (mean, variance), count, 1 - self.momentum)
        scale = self.gamma * ops.rsqrt(variance + self.eps)
        return ops.cast(centred * ops.reshape(scale, shape) + ops.reshape(self.beta, shape), dtype)


class LayerNorm(Cell):
    """Normalises over the last dims, from begin_norm_axis on (Ba et al., 2016; MindSpore: `nn.LayerNorm`).

    Args:
        normalized_shape: shape of gamma and beta: x's from begin_params_axis on.
        epsilon: added to the variance.

    >>> from minispore import Tensor, nn
    >>> nn.LayerNorm((2,))(Tensor([[1.0, 3.0]])).asnumpy().round(3).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(self, normalized_shape, begin_norm_axis=-1, begin_params_axis=-1, gamma_init="ones", beta_init="zeros",
                 epsilon=1e-7, dtype=mstype.float32):
        super().__init__()
        if not isinstance(normalized_shape, (tuple, list)) or not normalized_shape:
            raise TypeError(f"LayerNorm: normalized_shape {normalized_shape!r} must be a tuple of sizes, e.g. (512,)")
        self.normalized_shape, self.epsilon = tuple(normalized_shape), epsilon
        self.gamma = Parameter(initializer(gamma_init, self.normalized_shape, dtype), name="gamma")
        self.beta = Parameter(initializer(beta_init, self.normalized_shape, dtype), name="beta")
        self.layer_norm = ops.LayerNorm(begin_norm_axis, begin_params_axis, epsilon)

    def construct(self, input_x):
        return self.layer_norm(input_x, self.gamma, self.beta)[0]

    def extend_repr(self):
        return f"normalized_shape={self.normalized_shape}, epsilon={self.epsilon}"


class GroupNorm(Cell):
    """Normalises over groups of neighbouring channels of x (n, c, …) (Wu and He, 2018; MindSpore: `nn.GroupNorm`)."""

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, gamma_init="ones", beta_init="zeros",
                 dtype=mstype.float32):
        super().__init__()
        positive("GroupNorm", num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            raise ValueError(f"GroupNorm: num_groups={num_groups} must divide num_channels={num_channels}")
        self.gamma = Parameter(initializer(gamma_init, (num_channels,), dtype), name="gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, (num_channels,), dtype), name="beta", requires_grad=affine)
        self.group_norm = ops.GroupNorm(num_groups, eps)

    def construct(self, x):
        return self.group_norm(x, self.gamma, self.beta)[0]


class RMSNorm(Cell):
    """x / √(mean x² + eps) · gamma over the last dims (Zhang and Sennrich, 2019)."""

    def __init__(self, normalized_shape, gamma_init="ones", epsilon=1e-6, dtype=mstype.float32):
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.gamma = Parameter(initializer(gamma_init, shape, dtype), name="gamma")
        self.rms_norm = ops.RmsNorm(epsilon)

    def construct(self, x):
        return self.rms_norm(x, self.gamma)[0]
