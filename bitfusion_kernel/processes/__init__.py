"""The processes between proxy and kernel: supervisor, wrapper, launcher, and the messages between them.

`messages`, `message_connection`: what they say and how · `supervisor_link`: the proxy's side · `supervisor`,
`wrapper`, `wrapper_output`: the parent of `bitfusion run` · `launcher`, `kernel_guard`: the program under
`bitfusion run` · `orphans`: what a killed supervisor leaves · `reaper`: adopts orphans and reaps
them · `process_watch`: watching and signalling without pid races · `private_folder`: where the sockets lie ·
`held_file`: a file that is locked while a wrapper runs
"""
