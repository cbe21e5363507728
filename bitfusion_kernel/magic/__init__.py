"""The `%bitfusion` commands: recognising them, their help, and their answers.

`cell`: a cell that holds only such lines · `commands`: the subcommands · `kernel_view`: what their answers
may know of the kernel · `status_text`, `pool_table`, `pod_budget`: longer answers · `pool_limits`: what no
server can give · `completion`: what Tab offers · `ipython_extension`: the same commands in any other cell
"""
