"""Watches Notebooks and StatefulSets and heals what admission missed, on the one replica that is elected."""
