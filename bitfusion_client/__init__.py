"""The vocabulary every part of the project shares: requests, commands, the client's words, errors.

Standard library only. This package imports none of its modules by itself; the start-up path of a kernel
pays for what it names and for nothing else.
"""
