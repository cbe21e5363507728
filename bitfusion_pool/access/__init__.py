"""Who may use a pool over the network: tokens, the files that a client gets, TLS.

For the `bitfusion` command, standard library only:

- ``network_files``: finds and reads servers.conf and client.yaml
- ``file_contents``: what stands in them; ``plain_yaml``: the YAML they are written in; ``addresses``

For a service and its administrator:

- ``tokens``: what is kept of tokens and what each allows; ``token_text``, ``token_rules``: secret and limits
- ``tls``: both sides of a connection, for the `bitfusion` command, too
- ``certificates``: X.509; ``certificate_files``: where a service has its own
- ``token_file``: where they are kept; ``client_files``: what a client gets
"""
