"""The messages between the kubelet and a device plugin, as the kubelet's two published interfaces have them.

``v1beta1`` (``k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto``) and ``pluginregistration``
(``k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto``): names, numbers and types of the fields that are
used here; a field that is not named is skipped when it comes. The classes are made of this table when it is
imported, in a pool of their own: generated code would pin the major version of protobuf.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

DEVICE_PLUGIN = "v1beta1"
REGISTRATION = "pluginregistration"
VERSION = "v1beta1"  # of the device plugin's interface, as it is written in a registration
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
LONGEST_DEVICE_ID = 63

Message = Any
"""An instance of one of the classes below; their fields are known at run time only."""

_FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    DEVICE_PLUGIN: {
        "Empty": (),
        "DevicePluginOptions": ("1 bool pre_start_required", "2 bool get_preferred_allocation_available"),
        "RegisterRequest": (
            "1 string version",
            "2 string endpoint",
            "3 string resource_name",
            "4 DevicePluginOptions options",
        ),
        "Device": ("1 string ID", "2 string health"),
        "ListAndWatchResponse": ("1 repeated Device devices",),
        "ContainerAllocateRequest": ("1 repeated string devices_ids",),
        "AllocateRequest": ("1 repeated ContainerAllocateRequest container_requests",),
        "ContainerAllocateResponse": (),
        "AllocateResponse": ("1 repeated ContainerAllocateResponse container_responses",),
    },
    REGISTRATION: {
        "InfoRequest": (),
        "PluginInfo": (
            "1 string type",
            "2 string name",
            "3 string endpoint",
            "4 repeated string supported_versions",
        ),
        "RegistrationStatus": ("1 bool plugin_registered", "2 string error"),
        "RegistrationStatusResponse": (),
    },
}
_SCALARS = {"bool": FieldDescriptorProto.TYPE_BOOL, "string": FieldDescriptorProto.TYPE_STRING}


def _classes(package: str) -> dict[str, Any]:
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, rows in _FIELDS[package].items():
        message = file.message_type.add(name=name)
        for row in rows:
            number, *label, kind, field_name = row.split()
            field = message.field.add(name=field_name, number=int(number))
            field.label = (
                FieldDescriptorProto.LABEL_REPEATED if label else FieldDescriptorProto.LABEL_OPTIONAL
            )
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{package}.{kind}"
    pool = DescriptorPool()
    pool.Add(file)
    described = (pool.FindMessageTypeByName(f"{package}.{name}") for name in _FIELDS[package])
    return {message.name: GetMessageClass(message) for message in described}


_OF_PLUGIN, _OF_REGISTRATION = _classes(DEVICE_PLUGIN), _classes(REGISTRATION)

Empty: Any = _OF_PLUGIN["Empty"]
DevicePluginOptions: Any = _OF_PLUGIN["DevicePluginOptions"]
RegisterRequest: Any = _OF_PLUGIN["RegisterRequest"]
ListAndWatchResponse: Any = _OF_PLUGIN["ListAndWatchResponse"]
AllocateRequest: Any = _OF_PLUGIN["AllocateRequest"]
AllocateResponse: Any = _OF_PLUGIN["AllocateResponse"]
InfoRequest: Any = _OF_REGISTRATION["InfoRequest"]
PluginInfo: Any = _OF_REGISTRATION["PluginInfo"]
RegistrationStatus: Any = _OF_REGISTRATION["RegistrationStatus"]
RegistrationStatusResponse: Any = _OF_REGISTRATION["RegistrationStatusResponse"]
