"""The list of sizes against the cluster's own GPUs: what no rule of the admin's ``pods.yaml`` serves.

A user who chose such a size would have a notebook whose first cell says that there are no GPUs like that.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence

from bitfusion_client.gpu_pods.settings import parse_settings
from bitfusion_client.gpu_pods.size_rules import SizeRule, check_sizes
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.request.request_rules import MOST_GPUS
from jupyter_ext.spawner.sizes import Size, SizeList, example, parse_sizes
from jupyter_ext.spawner.wrong_file import WrongFile
from jupyter_ext.spawner.yaml_document import parse_document, read_document

NOT_SERVED = "is a size that no rule in {} serves; the rules serve {}"
NONE_SERVED = "serves no size of the example; write your own list, using {}"
ONE_AT_A_TIME = "No single rule serves these; a notebook with such a size can use it through several kernels:"


def add_pods_option(parser: argparse.ArgumentParser) -> None:
    """Add it to the parser of one command."""
    parser.add_argument(
        "--pods",
        metavar="FILE",
        help="your pods.yaml, for GPUs of the cluster itself; its rules must serve the sizes",
    )


def advice(sizes: SizeList, pods: str | None, numbers: Iterable[int]) -> list[str]:
    """Lines about what users can choose and not have at once, or about what has to be set elsewhere.

    Args:
        sizes: The list.
        pods: The path of ``pods.yaml``; None where the GPUs are a pool's.
        numbers: What users can multiply each size by.

    Raises:
        WrongFile: A size is served by no rule, or not by the number that is preselected; or there is no YAML.
        WrongSetting: The file has something else than settings for GPU pods.
        OSError: It cannot be read.
    """
    if pods is None:
        return sizes.advice()
    source, rules = _rules(pods)
    told = []
    for place, size in zip(sizes.places, sizes.sizes, strict=True):
        if not _is_served(size, rules):
            raise WrongFile(
                sizes.source, f"{place}:", size.label, NOT_SERVED.format(source, _there_are(rules))
            )
        several = _several(size, numbers, rules)
        if several:
            told.append(f"  {size.label} × {', '.join(several)}")
    return ["", ONE_AT_A_TIME, *told] if told else []


def served_example(pods: str | None) -> str:
    """The starter ``sizes.yaml``, of the sizes that a cluster has; what it raises is as of `advice`."""
    text = example()
    if pods is None:
        return text
    source, rules = _rules(pods)
    sizes = parse_sizes(parse_document(text, "the example")).sizes
    if not any(_is_served(size, rules) for size in sizes):
        raise WrongFile(source, "", None, NONE_SERVED.format(_there_are(rules)))
    for size in sizes:
        if not _is_served(size, rules):
            text = re.sub(rf"(?m)^- label: {re.escape(size.label)}\n(?:  .*\n)*", "", text)
    return text


def _rules(pods: str) -> tuple[str, Sequence[SizeRule]]:
    """What an error calls the file, and its rules."""
    document = read_document(pods)
    return document.source, parse_settings(document.data, document.source).rules


def _is_served(size: Size, rules: Sequence[SizeRule]) -> bool:
    return not check_sizes([_times(size, 1), size.request], rules)


def _there_are(rules: Sequence[SizeRule]) -> str:
    return "; ".join(dict.fromkeys(rule.describe() for rule in rules))


def _several(size: Size, numbers: Iterable[int], rules: Sequence[SizeRule]) -> list[str]:
    if size.number > 1:
        return []  # most forms offer it as it is
    offered = [number for number in numbers if number <= MOST_GPUS]
    return [str(number) for number in offered if check_sizes([_times(size, number)], rules)]


def _times(size: Size, number: int) -> GpuRequest:
    return GpuRequest(size.number * number, size.request.partial, size.request.memory_mib)
