"""The Kubernetes API as raw dicts: requests, streams, errors, paths, Events and patches."""
