"""The Jupyter kernel whose IPython runs under `bitfusion run`.

Importing the package costs nothing: proxy, supervisor and launcher are separate processes whose start-up
time a user feels, so each imports just what it needs.
"""
