"""Who holds which GPUs and who waits for them: leases, the queue, lease locks and wake-ups, kept in SQLite.

- ``ledger``: the interface: submit a request, release it, look at what there is
- ``queue``: grants requests in the order they came, finds dead entries, counts queue positions
- ``waiting``: waits until a queued request is granted
- ``entries``, ``queue_position``: a request in the ledger and its position, as values
- ``lease_lock``, ``liveness``: whether the holder of a lease is still there
- ``wake_up``: wakes a waiter from another process
- ``snapshot``: the whole pool at one moment
- ``stored_inventory``, ``entry_table``: what the tables contain
- ``transaction``, ``database``, ``sqlite``, ``pool_folder``: where and how it is stored
- ``complaints``: what is said when that cannot be used; ``old_pool``: the pool of earlier versions
"""
