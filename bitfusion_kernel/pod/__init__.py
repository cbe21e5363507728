"""A kernel in a pod with an injected client: the pod's budget, and who of its notebooks holds how much of it.

`facts`: what the injector has written about the pod · `budget`: its arithmetic · `turns`: whose turn it is ·
`account`: the files in which a container's kernels say what they hold · `take_turn`: the program that waits
for its turn and becomes `bitfusion run` · `turn_lines`: what it prints · `standing`: how the budget
stands now · `over_budget`: the error
"""
