"""What a program shows of itself: /healthz, /readyz and /metrics."""
