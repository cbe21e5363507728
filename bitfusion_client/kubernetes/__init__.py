"""Sizes, names and annotations in Kubernetes, and what raw objects say of them."""
