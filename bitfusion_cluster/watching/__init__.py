"""List and watch: caches kept equal to what the API server holds, and the work queue that changes fill.

The loop, whole. A program makes a `Cache` and a `ListWatch` for each resource (`WatchedResource`: its path,
and how a raw object is trimmed to a small record), and a `WorkQueue` for what is to be done::

    list ──> replace ┐                   changed(old, new)
                     ├─> Cache ─────────────────────────────> WorkQueue ──> worker ──> the API server
    watch ─> put,    ┘   (records by     each program maps    (each key     decides from caches,
      │      remove       namespace,     a record to the      once, to one  writes on a difference
      │                   name)          key it concerns      worker)         │
      └── one event a line: added, modified, deleted, bookmark                └─> retry: later, twice as
                                                                                  late each time

- `ListWatch` has a thread. `PagedList` reads everything in pages, `Cache.replace` tells what differs from
  before; then one watch after another goes on from the last resourceVersion (`parse_event` reads a line).
- *410 Gone*, of a watch: everything is listed anew; of a page: the list is begun again in smaller pages.
- *Any other failure* is waited out by a `Backoff`, 1 to 30 s, and the watch goes on where it was; after three
  unusable answers in a row everything is listed anew. `retry_now` ends the wait: the election's requests, one
  a second, have reached the server again.
- Nobody acts before `Cache.wait_synced`: a cache that is not filled looks as if nothing were there.
- A worker gets a key, reads the caches as they are *now*, and does what is missing; so events may be lost,
  doubled or late. What failed comes again (`WorkQueue.retry`), what succeeded is forgotten.
- A `RateLimiter` holds back the requests of all workers; `CacheAge` says how old what is known may be.

Who calls what: `bitfusion_cluster.leading.term` starts and stops a program's watches and workers with its
leadership; queue, identities and the controller's reconciler are such terms. Admission reads a cache that is
filled on every replica.
"""
