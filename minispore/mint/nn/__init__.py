"""`mint.nn`: the functions that networks are made of, in `functional`."""
from minispore.mint.nn import functional
