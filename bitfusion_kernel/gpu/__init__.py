"""Taking a GPU: from the settings to a running `bitfusion run`, and what the waiting cell shows.

Here belongs what knows the command line and the words of the bitfusion client; nothing here talks to Jupyter.
`kernel_starter`: request, client, command line · `request_note`: the request that survives a restart ·
`acquisition`: one `bitfusion run`, from its lines to why it ended · `waiting_notice`: what a wait looks like
"""
