"""Replies to Jupyter's requests while there is no kernel."""
