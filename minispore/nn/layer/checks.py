"""Checks of arguments that several layers share."""


def positive(layer: str, **numbers) -> None:
    """ValueError for what isn't a whole number ≥ 1."""
    for name, n in numbers.items():
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise ValueError(f"{layer}: {name}={n!r} must be a positive whole number")


def only_nchw(layer: str, data_format: str) -> None:
    if data_format != "NCHW":
        raise ValueError(f"{layer}: data_format {data_format!r}; only 'NCHW' is there, use HWC2CHW in the dataset")
