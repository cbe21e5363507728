"""The settings of the kernel, from kernelspec options, Jupyter's config files and the environment.

`table`: the settings · `values`: reads their values · `sources`: where a value can stand · `resolve`: which
value is in force · `unknown_variables`: what looks like a setting and is none · `config_path`,
`config_files`, `traits`: Jupyter's config files
"""
