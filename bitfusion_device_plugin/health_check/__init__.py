"""`bitfusion-health-check`: runs `bitfusion health` once, as a Job, and tells its result."""
