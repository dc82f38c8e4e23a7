"""Parameter groups: which parameters an optimizer has, in which order, and to which group each belongs."""
from minispore.common.parameter import Parameter

KEYS = ("params", "lr", "weight_decay", "grad_centralization")


def read_groups(name: str, parameters) -> tuple[dict[Parameter, int], list[dict] | None]:
    """({parameter: number of its group} in the order of the gradients, the groups; None where there are none).

    >>> import numpy as np
    >>> a, b = (Parameter(np.zeros(1), name=n) for n in "ab")
    >>> members, groups = read_groups("SGD", [{"params": [b], "lr": 0.1}, {"params": [a]}, {"order_params": [a, b]}])
    >>> [(p.name, group) for p, group in members.items()], len(groups)
    ([('a', 1), ('b', 0)], 2)
    """
    try:
        items = list(parameters)
    except TypeError:
        raise TypeError(f"{name}: parameters is a {type(parameters).__name__}; pass a list of Parameters or of groups, "
                        "e.g. net.trainable_params()") from None
    if not items:
        raise ValueError(f"{name}: no parameters given; pass net.trainable_params()")
    if not any(isinstance(item, dict) for item in items):
        return _members(name, [{"params": items}]), None
    groups = [_checked(name, g) for g in items]
    orders = [g["order_params"] for g in groups if "order_params" in g]
    groups = [g for g in groups if "order_params" not in g]
    members = _members(name, groups)
    return (_ordered(name, members, orders[0]) if orders else members), groups


def _checked(name, g):
    if not isinstance(g, dict):
        raise TypeError(f"{name}: parameters mixes groups with a {type(g).__name__}; pass only dicts, or only Parameters")
    if set(g) == {"order_params"}:
        return g
    if set(g) - set(KEYS) or "params" not in g:
        raise ValueError(f"{name}: a parameter group has the keys {sorted(g)}; it needs 'params' and may have "
                         f"{', '.join(map(repr, KEYS[1:]))}; 'order_params' stands in a dict of its own")
    if not isinstance(g.get("grad_centralization", False), bool):
        raise TypeError(f"{name}: grad_centralization {g['grad_centralization']!r} must be True or False")
    return {**g, "params": list(g["params"])}


def _members(name, groups) -> dict:
    members: dict[Parameter, int] = {}
    for number, g in enumerate(groups):
        for p in g["params"]:
            if not isinstance(p, Parameter):
                raise TypeError(f"{name}: {p!r} is a {type(p).__name__}; optimizers take Parameters, "
                                "e.g. net.trainable_params()")
            if p in members:
                raise ValueError(f"{name}: parameter {p.name} is given twice; each once")
            members[p] = number
    if not members:
        raise ValueError(f"{name}: all parameter groups are empty; put net.trainable_params() into them")
    return members


def _ordered(name, members, order) -> dict:
    order = dict.fromkeys(order)
    odd = [p.name for p in order if p not in members] + [p.name for p in members if p not in order]
    if odd or len(order) != len(members):
        raise ValueError(f"{name}: order_params lists {len(order)} parameters, the groups have {len(members)}"
                         + (f"; only one of the two has {', '.join(odd)}" if odd else "") + ". Both must be the same")
    return {p: members[p] for p in order}
