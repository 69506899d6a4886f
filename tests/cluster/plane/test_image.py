"""The image on a real API server: started as the chart's Deployment starts it, it leads and binds."""

import pytest

from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import wait_for
from tests.cluster.plane.release import forbidden, released
from tests.support.gotools import ToolMissingError
from tests.support.image import command, image

pytestmark = pytest.mark.slow
ACCOUNT = "/run/secrets/kubernetes.io"


def test_the_image_binds_with_the_rights_of_the_chart(make_cluster: Make) -> None:
    """In a user namespace, read-only, as its own user, with the account's token where a kubelet puts it."""
    cluster = make_cluster()
    cluster.nodes(2, gpus=4)
    cluster.queues(research=8)
    with released(cluster.plane, "shipped") as release:
        replica = release.replica(cluster)
        settings = cluster.folder / "settings"
        account = cluster.folder / "account" / "serviceaccount"
        for folder in (settings, account):
            folder.mkdir(parents=True)
        (settings / "settings.yaml").write_text(release.settings()["one-kai-solver"])
        (account / "token").write_text(release.token())
        (account / "ca.crt").write_bytes(cluster.plane.authority.read_bytes())
        (account / "namespace").write_text("shipped")
        replica.component.env = {}
        env = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(cluster.plane.port),
            "KAI_SOLVER_HEALTH_BIND_ADDRESS": replica.health,
            "KAI_SOLVER_METRICS_BIND_ADDRESS": "",
        }
        mounts = {settings: "/etc/kai-solver", account.parent: ACCOUNT}
        try:
            replica.component.command = command(image(), (), env, mounts)
        except ToolMissingError as error:
            pytest.skip(f"NOT TESTED: {error}")
        replica.start()
        cluster.job("gang", "research", 4)
        cluster.wait_bound(4, "gang")
        assert forbidden(replica) == []
        assert release.token() not in replica.component.log.read_text()
        assert replica.component.process is not None
        wait_for("it runs", lambda: replica.component.runs)
