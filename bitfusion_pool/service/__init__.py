"""The service: one process that owns a pool and serves users of this machine and clients on others.

- ``process``: starts and ends it; ``settings``: its settings; ``systemd_unit``: how systemd runs it
- ``listener``: the unix socket, ``peer``: who is at its other end
- ``tls_listener``: the port and its handshakes; ``certificate``; ``acceptor``: what both listeners do
- ``admission``: who is let in, as whom; ``connection_counts``: and how often
- ``connection``: bytes, lines and their bounds, on a ``stream`` or ``tls_stream``; ``turns``: whose turn
- ``session``: what one client may say, and what follows; ``lease_life``: how what it has lives
- ``operations``: what is done with the ledger for whom; ``limits``, ``lease_secrets``, ``refusal``
- ``entry_watch``: who is told what of the queue; ``queued_request``; ``lease_watch``: leases whose clients
  are gone; ``remote_leases``: those of clients on other machines; ``timed_event``
- ``found_devices``: what is handed out without a pool.toml; ``device_readings``: what others use of real
  devices; ``card_reader``: one reading; ``process_users``: whose a process on a card is
- ``metrics``: what Prometheus reads; ``pool_census``: one look at the ledger for it and for who is told what;
  ``holder_usage``: who holds what over time

One thread runs everything, in turns of a few milliseconds.
"""
