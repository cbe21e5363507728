"""Admission webhooks: an HTTPS server that reads reviews, has them decided and answers."""
