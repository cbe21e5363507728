"""The administrator's command `bitfusion-pool`."""
