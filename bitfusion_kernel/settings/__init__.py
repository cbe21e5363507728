"""The settings of the kernel, from kernelspec options, Jupyter's config files and the environment.

`table`: the settings · `values`: reads their values · `sources`: where a value can stand · `resolve`: which
value is in force · `config_path`, `config_files`, `traits`: Jupyter's config files
"""
