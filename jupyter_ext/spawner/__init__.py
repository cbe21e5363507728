"""From an admin's list of GPU sizes to the forms that start notebooks.

`sizes` reads the list. `form_config` makes Kubeflow's form of it, `kustomize` its manifests, `form_hook` is
what runs in the form's backend and `hook_bundle` makes one file of that; `form_command` ties them together.
`presets` are the sizes with their numbers, of which `kubespawner_profiles` makes JupyterHub's list and
`workspace_kind` an object of Notebooks v2; `profiles_command` and `workspacekind_command` write these.
"""
