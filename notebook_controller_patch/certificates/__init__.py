"""The certificate of the admission server: served from files or signed by a built-in authority."""
