"""Replies to Jupyter's requests while there is no kernel.

Here belongs what can be answered from what is known without one: content in, content out, no sockets.
"""
