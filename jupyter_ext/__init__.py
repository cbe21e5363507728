"""What Jupyter and the forms that start notebooks load and show of the pool, a folder for each."""
