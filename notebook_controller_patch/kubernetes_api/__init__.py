"""The Kubernetes API as raw dicts: requests, watches, errors, paths; over the official client."""
