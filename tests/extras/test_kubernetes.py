"""The manifests of deploy/kubernetes against Kubernetes' own schemas. `make test-extras`."""

from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"


@pytest.mark.parametrize("version", ["1.29", "1.31", "1.37"])
@pytest.mark.parametrize("name", ["server", "site"])
def test_the_manifests_follow_the_schemas(name: str, version: str) -> None:
    """Unknown fields are errors, too."""
    schemas = pytest.importorskip("kubernetes_validate")
    manifests = list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))
    for manifest in manifests:
        schemas.validate(manifest, desired_version=version, strict=True)
    manifests[-1]["spec"]["policytypes"] = []
    with pytest.raises(schemas.ValidationError):
        schemas.validate(manifests[-1], desired_version=version, strict=True)
