"""Rejected by test_every_strategy_of_many_equations: gives the counts in the order of the inputs' letters."""
from math import prod


def sharding(equation, shapes, strategy, devices):
    inputs, output = equation.split("->")
    pieces = {}
    for letters, shape, counts in zip(inputs.split(","), shapes, strategy, strict=True):
        for letter, size, count in zip(letters, shape, counts, strict=True):
            if size % count:
                raise ValueError(f"{letter} has {size} values, which can't be split into {count} equal pieces")
            if letter.isupper() and count > 1:
                raise ValueError(f"{letter} must stay whole, the strategy splits it into {count} pieces")
            if pieces.setdefault(letter, count) != count:
                raise ValueError(f"{letter} is split into {pieces[letter]} pieces in one input, {count} in another")
    if devices % prod(pieces.values()):
        raise ValueError(f"{prod(pieces.values())} pieces, which does not divide {devices} devices")
    contracted = sorted(set(pieces) - set(output))
    return tuple(n for letter, n in pieces.items() if letter in output), "".join(c for c in contracted if pieces[c] > 1)
