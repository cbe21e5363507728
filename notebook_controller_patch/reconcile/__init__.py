"""Level-triggered healing of Notebooks and their StatefulSets, by the one replica that leads."""
