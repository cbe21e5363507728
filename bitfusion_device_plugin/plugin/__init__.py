"""The device plugin: `bitfusion.io/gpu` units on every node, healthy only while the pool answers."""
