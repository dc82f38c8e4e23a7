"""Rejected by test_counts_the_devices: asks whether the pieces are fewer than the devices, not whether they divide them."""
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
    if prod(pieces.values()) > devices:
        raise ValueError(f"{prod(pieces.values())} pieces, for {devices} devices")
    contracted = sorted(set(pieces) - set(output))
    return tuple(pieces[letter] for letter in output), "".join(c for c in contracted if pieces[c] > 1)
