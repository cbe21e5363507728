"""What a client of a pool and its service say to each other: typed messages, one JSON object a line. Pure.

- ``from_client``, ``from_service``: every message, by who sends it
- ``message``: reading and writing one; ``field_types``: their fields as JSON values
- ``pool_values``: servers, shares and entries as JSON values
- ``lines``: cuts a stream of bytes into lines of limited length
- ``refusal_codes``: why a service refuses, for programs
"""
