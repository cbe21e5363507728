"""From a notebook's pod, a request and the admin's rules to the pod for one program. Pure."""
