"""`bitfusion-health-check`: runs `bitfusion health` once, as a Job, and tells its result.

- ``verdict``: what a report means, in words and as a figure
- ``client_report``: runs the client; its report goes to standard output as it comes
- ``told_event``: the Event on the CronJob; ``shown_metrics``: figures for a scrape
- ``process``, ``settings``, ``cli``: the command
"""
