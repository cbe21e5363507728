"""An hour of notebooks that start, compute, wait, change, give back and are killed, all at random.

`__main__` is the command, `notebooks` the two kinds of notebooks, `actions` what is done to them,
`invariants` what must hold all the time and at the end.
"""
