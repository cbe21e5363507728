"""`bitfusion-pool status --kubernetes`: what pods count of the pool, beside who holds what of it."""
