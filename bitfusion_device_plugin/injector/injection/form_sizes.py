"""The notebook form's list of sizes, as JupyterLab in the notebook offers them again.

The injector passes it on as it is: the command that makes the form of it has checked each size, and the
Jupyter server in the pod checks it once more, and makes sizes from the pool of a list that it cannot use.
"""

from __future__ import annotations

import json

from bitfusion_client.errors import WrongSetting

LONGEST_TEXT = 1 << 16  # characters of all of it as JSON: a variable of a container has it

NOT_A_LIST = "must have a list `sizes`, as `kubeflow-bitfusion form` reads it, or be empty"
TOO_LONG = f"is too long: as JSON it may have at most {LONGEST_TEXT} characters"


def parse_form_sizes(data: object, source: str = "") -> str:
    """The sizes of a ``sizes.yaml`` as one line of JSON; empty for an empty file.

    Args:
        data: As YAML reads it; None for an empty file.
        source: The path of the file, for the message of an error.

    Raises:
        WrongSetting: It is no list of sizes, or too long.
    """
    if data is None:
        return ""
    sizes = data.get("sizes") if isinstance(data, dict) else None
    if not isinstance(sizes, list) or not sizes or not all(isinstance(each, dict) for each in sizes):
        raise WrongSetting("sizes", data, NOT_A_LIST, source)
    try:
        text = json.dumps({"sizes": sizes}, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # a date, or a list that contains itself
        raise WrongSetting("sizes", data, NOT_A_LIST, source) from None
    if len(text) > LONGEST_TEXT:
        raise WrongSetting("sizes", f"{len(sizes)} sizes", TOO_LONG, source)
    return text
