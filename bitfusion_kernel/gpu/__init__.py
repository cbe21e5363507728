"""Taking a GPU: from the settings to a running `bitfusion run`, and what the waiting cell shows."""
