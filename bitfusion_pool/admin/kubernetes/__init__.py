"""`bitfusion-pool status --kubernetes`: what pods count of the pool, beside who holds what of it.

- ``kubectl``: runs `kubectl`, or reads what it printed elsewhere
- ``cluster_objects``: nodes, pods and quotas as far as they concern the pool, from the raw objects
- ``protection``: whether the pool can be sold twice
- ``cluster_report``: both sides put together
- ``report_text``, ``report_json``: for people, for programs
"""
