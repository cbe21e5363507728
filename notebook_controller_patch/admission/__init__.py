"""Admission of Notebooks and StatefulSets: pure functions from a review to a JSON patch, and their server.

Fails open, always: what is no review is told so, but an object is only ever refused for a size that cannot
be. Nothing here imports the Kubernetes client; a review is `json.loads` and one dict after the other.
"""
