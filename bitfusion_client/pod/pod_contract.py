"""What a pod with an injected client looks like: names and paths on which several programs rely.

The injector writes the pod, the client's image and its starter fill the folder, the kernel and the stand-in
read it, the identity controller makes the Secret. A folder is filled once, when its pod starts: whoever
changes a name here still meets running pods that have the old one.
"""

from __future__ import annotations

# Annotations of the pod, besides those in `kubernetes_names`.
ANNOTATION_STATUS = "auto-management/status"  # as VMware's injector calls it
STATUS_INJECTED = "injected"
ANNOTATION_PATH = "bitfusion.io/path"
PATH_NONE = "none"  # nothing is mounted at `COMMAND_PATH`

# Of a GPU pod, which a client of the kind `PODS` makes for one program and deletes after it.
LABEL_GPU_POD_OF = "bitfusion.io/gpu-pod-of"  # the uid of the pod that made it
ANNOTATION_HOLDER = "bitfusion.io/holder"  # container and user whose process has made it
ANNOTATION_HOLDS = "bitfusion.io/holds"  # its request in options: -n 1 -p 0.5
ANNOTATION_STATE = "bitfusion.io/state"  # what its kernel does, as JSON: state, since, idle_since
PROGRAM_CONTAINER = "program"

# Volumes. The first is an emptyDir with one folder for each container that asks, by the container's name.
CLIENT_VOLUME = "bitfusion-client"
IDENTITY_VOLUME = "bitfusion-identity"
IDENTITY_SECRET = "bitfusion-client"  # in the pod's namespace; it may be absent

# In a container that asks: its folder, read-only, and the command of its folder on every usual PATH.
CLIENT_FOLDER = "/bitfusion"
COMMAND_PATH = "/usr/local/bin/bitfusion"
IDENTITY_PATH = "/bitfusion/identity"
KEYS_PATH = "/bitfusion/keys"  # in a GPU pod, whose folder is a Secret
VMWARE_TLS_PATH = "/etc/bitfusion/tls"  # where VMware's client looks for the CA; for its kind only

# Within the folder of a container.
COMMAND_FILE = "bin/bitfusion"
PODS_FOLDER = "pods"
OPENSSL_FOLDER = "pods/openssl"  # a program with libraries of its own, which makes keys
PACKAGES_FOLDER = "packages"
IDENTITY_FOLDER = "identity"
KEYS_FOLDER = "keys"
POD_FOLDER = "pod"

# Files in `POD_FOLDER`: text without a line end.
NAME_FILE = "name"
NAMESPACE_FILE = "namespace"
UID_FILE = "uid"
NOTEBOOK_FILE = "notebook"  # empty in a pod that belongs to no Notebook
CONTAINER_FILE = "container"
REQUEST_FILE = "request"  # the container's budget in options: -n 2 -p 0.5
UNITS_FILE = "units"  # the same in percent × amount
CLIENT_FILE = "client"  # one of `KINDS`
PACKAGE_FILE = "package"  # VMware's: the folder's name below `PACKAGES_FOLDER`; empty for the others
SETTINGS_FILE = "pods.json"  # the admin's settings for GPU pods; where the kind is `PODS`
SIZES_FILE = "sizes.json"  # the form's list of sizes, for JupyterLab; only where the admin has given one

# Files in `KEYS_FOLDER` of a GPU pod, all PEM.
KEY_FILE = "tls.key"
CERTIFICATE_FILE = "tls.crt"
CLIENT_CERTIFICATE_FILE = "client.crt"  # of the command that made it: whom its agent lets in

# Kinds of client.
STAND_IN = "stand-in"
VMWARE = "vmware"
PODS = "pods"  # GPUs of the cluster itself: the program runs in a pod that is made for it
KINDS = (STAND_IN, VMWARE, PODS)
OF_GPU_PODS = "GPUs of this Kubernetes cluster"  # `bitfusion version` of `PODS`, wherever it was found

# Keys of the Secret, which are the three files of VMware's client.
SERVERS_KEY = "servers.conf"
TOKEN_KEY = "client.yaml"
CA_KEY = "ca.crt"

# Init containers. The first one is started with `INSTALL_COMMAND`, and as arguments `VOLUME_PATH` and then,
# for each container that asks, `name request units kind package`.
INIT_CONTAINER = "bitfusion-client"
PACKAGES_CONTAINER = "bitfusion-packages"
IMAGE_FOLDER = "/bitfusion-image"
INSTALL_COMMAND = (f"{IMAGE_FOLDER}/bin/sh", f"{IMAGE_FOLDER}/install")
VOLUME_PATH = "/bitfusion-volume"
PACKAGES_IN_IMAGE = "/bitfusion"  # upstream's layout: one folder for each package

# Variables of our first init container, by the downward API, and the label from which the last one comes.
ENV_POD_NAME = "BITFUSION_POD_NAME"
ENV_POD_NAMESPACE = "BITFUSION_POD_NAMESPACE"
ENV_POD_UID = "BITFUSION_POD_UID"
ENV_NOTEBOOK = "BITFUSION_NOTEBOOK"
LABEL_NOTEBOOK = "notebook-name"

# Where the kind is `PODS`: the text of `SETTINGS_FILE`.
ENV_SETTINGS = "BITFUSION_PODS"
# Where the admin has given a list of sizes: the text of `SIZES_FILE`.
ENV_SIZES = "BITFUSION_SIZES"

CLIENT_IMAGE = "kubeflow-bitfusion/client:0.1.0"
RUN_AS_USER = 65532  # of our init containers, unless the pod says
