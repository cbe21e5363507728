"""Admission webhooks for Notebooks and StatefulSets: pure functions from review to JSON patch, and a server.

It always fails open: an object is only ever refused for a size that cannot be. Nothing here imports the
Kubernetes client; a review is read into raw dicts.
"""
