"""Which notebook of a cluster a holder is: the namespace by its token, the notebook by what its client says.

For metrics and for `bitfusion-pool status --json`. A token that the identity controller has issued is
called ``ISSUER/NAMESPACE``, and nobody else can give such a name (`access.token_rules`). What a client says
of its pod, ``NAMESPACE/NOTEBOOK`` as its host (`client.holder`), anybody may say: it is believed only as far
as its namespace is the token's.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Entry, Holder


@dataclass(frozen=True, slots=True)
class HolderPlace:
    """Where a holder is.

    Attributes:
        namespace: That of its token; empty for a user of the machine, and for a token of no namespace.
        notebook: The notebook, or a pod that belongs to none, in this namespace; empty where the client names
            none there. A name that ends with … is the beginning of one.
        claimed: What the client says where its namespace is not the token's; else empty.
    """

    namespace: str
    notebook: str = ""
    claimed: str = ""


def holder_place(holder: Holder) -> HolderPlace:
    """The place of a holder, by its token's name and what its client says."""
    issuer, separator, namespace = holder.user.rpartition("/")
    if not holder.is_remote or not separator or not issuer:
        return HolderPlace("")
    claimed, separator, notebook = holder.host.partition("/")
    if not separator:
        return HolderPlace(namespace)
    if claimed != namespace:
        return HolderPlace(namespace, "", holder.host)
    return HolderPlace(namespace, notebook)


def device_sizes(servers: Iterable[Server]) -> dict[tuple[str, int], int]:
    """The MiB of every device, by server key and number."""
    return {(server.key, gpu.number): gpu.memory_mib for server in servers for gpu in server.devices}


def gpu_part(sizes: Mapping[tuple[str, int], int], server: str, number: int, memory_mib: int) -> float:
    """Which part of a GPU a share is, from 0 to 1, by the sizes of the devices.

    Of a device that is no more, or that shrank below what is leased of it, a share is the whole.
    """
    return memory_mib / max(sizes.get((server, number), 0), memory_mib, 1)


def gpus_held(entry: Entry, sizes: Mapping[tuple[str, int], int]) -> float:
    """What a lease holds as GPUs: two halves are 1."""
    return sum(gpu_part(sizes, share.server, share.number, share.memory_mib) for share in entry.shares)
