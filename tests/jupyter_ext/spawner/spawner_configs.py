"""Files as admins have them: ``spawner_ui_config.yaml`` in the style of each Kubeflow, cut short."""

from __future__ import annotations

# 1.8 to 1.11: banners between the sections, lists at the column of their key, `num` last
NEWER = """\
# Configuration of the notebook form.
spawnerFormDefaults:
  ##########################
  # Images
  ##########################
  image:
    value: example.org/jupyter-scipy:v1.8.0
    options:
    - example.org/jupyter-scipy:v1.8.0   # the small one

  ##########################
  # GPUs
  ##########################
  gpus:
    readOnly: false

    # configs for limits
    value:
      # none is preselected
      vendor: ""

      vendors:
      - limitsKey: "nvidia.com/gpu"
        uiName: "NVIDIA"
      - limitsKey: "amd.com/gpu"
        uiName: "AMD"
      - limitsKey: "habana.ai/gaudi"
        uiName: "Intel Gaudi"

      # (possible values: "none", "1", "2", "4", "8")
      num: "none"

  ##########################
  # Volumes
  ##########################
  workspaceVolume:
    readOnly: false  # users may change it
    value: {mount: /home/jovyan}
# the end
"""

# 1.4 to 1.7: few words, lists indented
OLDER = """\
spawnerFormDefaults:
  cpu:
    # CPU for user's notebook
    value: '0.5'
    readOnly: false
  gpus:
    # Number of GPUs to be assigned to the notebook
    value:
      # values: "none", "1", "2", "4", "8"
      num: "none"
      # what the UI shows
      vendors:
        - limitsKey: "nvidia.com/gpu"
          uiName: "NVIDIA"
        - limitsKey: "amd.com/gpu"
          uiName: "AMD"
      # the default vendor
      vendor: ""
    readOnly: false
  affinityConfig:
    # no default
    value: ""
"""
