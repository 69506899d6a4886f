"""Writes the bill of materials of a built image, as CycloneDX: ``python deploy/image/sbom.py OUT``.

``OUT/sbom.cdx.json`` lists what ``build.py`` unpacked and installed: Debian's packages, and those of
``requirements/runtime.txt``, each with its version and the SHA-256 of the archive that it came from.
"""

import json
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

RELEASE = "debian-12"


def bill(out: Path) -> str:
    """The bill of the image in ``out``, as JSON; it depends on the image alone."""
    index = json.loads((out / "oci" / "index.json").read_text())
    digest = str(index["manifests"][0]["digest"])
    manifest = json.loads((out / "oci" / "blobs" / digest.replace(":", "/")).read_text())
    config = json.loads((out / "oci" / "blobs" / manifest["config"]["digest"].replace(":", "/")).read_text())
    version = config["config"]["Labels"]["org.opencontainers.image.version"]
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, digest))
    bom.metadata.timestamp = datetime.fromisoformat(config["created"]).astimezone(UTC)
    image = PackageURL("oci", None, "kai-solver", digest, {"tag": version})
    bom.metadata.component = Component(
        name="kai-solver", version=version, type=ComponentType.CONTAINER, purl=image, bom_ref="image"
    )
    packages = json.loads((out / "packages.json").read_text())
    for entry in packages["debian"]:
        named = {"arch": entry["architecture"], "distro": RELEASE}
        _add(bom, entry, PackageURL("deb", "debian", entry["name"], entry["version"], named))
    for entry in packages["python"]:
        _add(bom, entry, PackageURL("pypi", None, entry["name"].lower().replace("_", "-"), entry["version"]))
    bom.register_dependency(bom.metadata.component, bom.components)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _add(bom: Bom, entry: dict[str, str], purl: PackageURL) -> None:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=entry["sha256"])] if entry["sha256"] else []
    licences = [LicenseFactory().make_from_string(entry["license"])] if entry.get("license") else []
    component = Component(
        name=entry["name"], version=entry["version"], purl=purl, bom_ref=str(purl), hashes=hashes, licenses=licences
    )
    bom.components.add(component)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "sbom.cdx.json").write_text(bill(folder))
