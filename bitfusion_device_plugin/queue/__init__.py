"""Pods that ask for units of the pool wait at their scheduling gate, lifted in order by one leader."""
