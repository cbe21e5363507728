"""Taking a GPU: from the settings to a running `bitfusion run`, and what the waiting cell shows.

Here belongs what knows the command line and the words of the bitfusion client; nothing here talks to Jupyter.
"""
