# SPDX-License-Identifier: Apache-2.0
"""A folder of manifests and config objects as config store, registry and secret source.

`folder.Folder` reads and watches; `configs.FileConfigStore`, `registry.FileRegistry`,
`secrets.FileSecrets` and `manifests.FileManifests` are views of it: one read, one watch.
"""
