"""Which devices a service hands out, and what others use of them."""
