"""One TLS connection between `bitfusion run` and the pod in which its program runs; it carries everything.

Frames (`frames`) go over a stream of bytes that outlives the loss of its TCP connection (`link`): what the
other side has not acknowledged is kept (`kept_bytes`) and sent again on the next connection, whose beginning
(`greeting`, `handshake`) says what has arrived. Below them is `tls_connection`.
"""
