"""The Kubernetes API as `bitfusion run` needs it: some requests over one connection, and one watch.

A client of our own, on http.client: it starts in 60 ms where the library `kubernetes` takes 700, and no image
of a user's has to have anything but Python.
"""
