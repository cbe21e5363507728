"""The service: one process that owns a pool and serves the users of this machine over a unix socket.

- ``process``: starts and ends it; ``settings``: its settings; ``systemd_unit``: how systemd runs it
- ``listener``: the socket; ``connection``: bytes, lines and their bounds; ``turns``: one message of each user
- ``session``: what one client may say, and what follows
- ``operations``: what is done with the ledger for whom; ``limits``, ``lease_secrets``, ``refusal``
- ``entry_watch``: who is told what of the queue; ``lease_watch``: leases whose clients are gone;
  ``timed_event``
- ``peer``: who is at the other end of the socket
- ``metrics``: what Prometheus reads

One thread runs everything, in turns of a few milliseconds.
"""
