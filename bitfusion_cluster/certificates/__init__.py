"""The certificate of a webhook: served from files, or signed and renewed by a built-in authority."""
