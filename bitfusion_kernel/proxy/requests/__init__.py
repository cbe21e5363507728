"""What Jupyter's clients ask for on shell and control: answered at once, queued as cells, or relayed."""
