"""Watches Notebooks and StatefulSets and heals what admission missed, on the one replica that is elected.

From the process inwards: `service` (one replica) elects by `election` and runs a `term`; its `reconciler`
takes keys from the `work_queue`, asks `decisions`, and has the `writer` do them. `list_watch` fills the
`cache` with `records`. Pure: `decisions`, `pending`, `events`, `records`, `watch_event`.
"""
