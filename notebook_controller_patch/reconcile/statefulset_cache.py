"""The StatefulSets of Notebooks, found by the Notebook that owns them, whatever they are called.

Kubeflow's controller calls them as their Notebook. Open Data Hub's does so up to 52 characters, and has the
API server make a name for longer ones: ``nb-x7k2p``, whose pod is ``nb-x7k2p-0``.
"""

from __future__ import annotations

from bitfusion_cluster.watching.cache import Cache, Changed, Key
from notebook_controller_patch.reconcile.records import StatefulSetRecord


class StatefulSetCache(Cache[StatefulSetRecord]):
    """Filled by the watch of one term of leadership, read by the workers that reconcile."""

    def __init__(self, changed: Changed[StatefulSetRecord] | None = None) -> None:
        super().__init__(changed)
        # By owner, and only those that are called otherwise. Values are replaced, never changed: others read.
        self._called_otherwise: dict[Key, tuple[Key, ...]] = {}

    def of_notebook(self, namespace: str, name: str, uid: str) -> StatefulSetRecord | None:
        """The one that this very Notebook owns and that nobody has deleted; None if there is none.

        Of several the one with the Notebook's name, else one that has replicas, else the first by name.
        """
        keys = ((namespace, name), *self._called_otherwise.get((namespace, name), ()))
        records = [self.get(*key) for key in keys]
        own = [each for each in records if each is not None and each.owner_uid == uid and not each.deleting]
        return min(own, key=lambda each: (each.name != name, each.replicas < 1, each.name), default=None)

    def owner_of(self, key: Key) -> Key:
        """The Notebook of a StatefulSet; of one that is not known the one of its name."""
        record = self.get(*key)
        return key if record is None else record.owner_key

    def replace(self, records: dict[Key, StatefulSetRecord]) -> None:
        """See `Cache`. Who waits for the first list finds the owners, too."""
        for record in records.values():
            self._note(record)
        super().replace(records)

    def _report(self, old: StatefulSetRecord | None, new: StatefulSetRecord | None) -> None:
        if old is not None and (new is None or new.owner_key != old.owner_key):
            self._forget(old)
        if new is not None:
            self._note(new)
        super()._report(old, new)

    def _note(self, record: StatefulSetRecord) -> None:
        known = self._called_otherwise.get(record.owner_key, ())
        if record.name != record.owner_name and record.key not in known:
            self._called_otherwise[record.owner_key] = (*known, record.key)

    def _forget(self, record: StatefulSetRecord) -> None:
        left = tuple(key for key in self._called_otherwise.pop(record.owner_key, ()) if key != record.key)
        if left:
            self._called_otherwise[record.owner_key] = left
