"""Rejected by test_refuses_and_names_the_letter: lets the second input's count of k win over the first's."""
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
            pieces[letter] = count
    if devices % prod(pieces.values()):
        raise ValueError(f"{prod(pieces.values())} pieces, which does not divide {devices} devices")
    contracted = sorted(set(pieces) - set(output))
    return tuple(pieces[letter] for letter in output), "".join(c for c in contracted if pieces[c] > 1)
