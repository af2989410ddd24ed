# SPDX-License-Identifier: Apache-2.0
"""Writes the descriptors of the given proto files, and all they import, as one FileDescriptorSet.

Runs as a program of its own, `extract_descriptors.py XDS_PROTOS OUT PROTO...`, never as an import:
loading xds-protos fills the process's one descriptor pool and shadows the `envoy` and
`opentelemetry` packages, which nothing else should have to live with.
"""

import importlib
import sys
from pathlib import Path

import google
from google.protobuf import descriptor, descriptor_pb2


def main(xds_protos: str, out: str, *protos: str) -> None:
    """Load each proto's module from `xds_protos` (a wheel or a folder) and write the set."""
    sys.path.insert(0, xds_protos)
    # protobuf's `google` is loaded already, and would hide the one that xds-protos brings.
    google.__path__ = [f"{xds_protos}/google", *google.__path__]
    found: dict[str, descriptor.FileDescriptor] = {}

    def visit(file: descriptor.FileDescriptor) -> None:
        # Imports first: protoc wants each file after those that it depends on.
        if file.name in found:
            return
        for dependency in file.dependencies:
            visit(dependency)
        found[file.name] = file

    for proto in sorted(protos):
        module = proto.removesuffix(".proto").replace("/", ".") + "_pb2"
        visit(importlib.import_module(module).DESCRIPTOR)

    result = descriptor_pb2.FileDescriptorSet()
    for file in found.values():
        file.CopyToProto(result.file.add())
    Path(out).write_bytes(result.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
