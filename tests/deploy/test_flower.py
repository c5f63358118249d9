"""Flower as this library uses it: one folder knows it, nothing else needs it, and it reports to nobody."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from sottovoce.core.check import InvalidInput
from sottovoce.deploy import keys as certificates
from sottovoce.experiment import run_file
from tests.machines import LONG


def test_a_certificate_is_good_on_the_servers_own_machine(tmp_path: Path) -> None:
    """Its app processes and its operator come by loopback, whatever name the clients know it by."""
    from cryptography import x509

    certificates.make(tmp_path / "keys", ["server.example", "127.0.0.1"], [], days=1)
    made = x509.load_pem_x509_certificate((tmp_path / "keys" / "server.pem").read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.example", "localhost"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("flwr.supernode.fleet_http_client", ["FleetHttpClient"]),
        ("flwr.supernode.node_auth_http_interceptor", ["NodeAuthHttpInterceptor"]),
        ("flwr.supercore.interceptors.http.utils", ["add_headers"]),
        ("flwr.supercore.runtime_version_compatibility", ["RuntimeVersionMetadata"]),
        ("flwr.supercore.inflatable.inflatable_utils", ["pull_and_inflate_object_from_tree", "push_objects"]),
        ("flwr.superlink.grid.http_grid", ["pull_objects"]),  # which the server replaces
        ("flwr.superlink.servicer.fleet.fleet_handlers", ["activate_node"]),  # as our SuperLink does this
    ],
)
def test_private_names_of_flower_are_where_they_were(module: str, names: list[str]) -> None:
    """Flower promises none of them. Another version is tried by changing the pin and running these tests."""
    assert all(hasattr(import_module(module), name) for name in names)


def test_flowers_client_knows_the_requests_of_a_node() -> None:
    from flwr.supernode.fleet_http_client import FleetHttpClient

    asked = ("ActivateNode", "DeactivateNode", "SendNodeHeartbeat", "PullMessages", "PushMessages")
    asked += ("PullObject", "PushObject", "ConfirmMessageReceived")
    assert all(callable(getattr(FleetHttpClient, name)) for name in asked)
    client = FleetHttpClient.from_server_address("127.0.0.1:1", False, None, [])
    assert isinstance(client._client, httpx.Client)  # which a node replaces
    client.close()


def test_one_folder_knows_flower() -> None:
    home = Path(run_file.__file__).parents[1]
    users = {path.parent for path in home.rglob("*.py") if re.search(r"^\s*(import|from) flwr", path.read_text(), re.M)}
    assert users == {home / "deploy" / "flower"}


def test_the_library_loads_without_flower() -> None:
    modules = "sottovoce.cli.main, sottovoce.deploy.node, sottovoce.deploy.server"
    code = f"import sys; sys.modules['flwr'] = None; import {modules}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LONG)


def test_telemetry_is_off_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower is started with its reports home, its update check and its downloads switched off."""
    from sottovoce.cli import flower

    started: list[Any] = []
    monkeypatch.setattr(flower.os, "execve", lambda *a: started.append(a))
    context: Any = type("Context", (), {"args": ["supernode", "register", "key.pub"]})
    flower.flower(context)
    path, arguments, environment = started[0]
    assert (Path(path).name, arguments) == ("flwr", ["flwr", "supernode", "register", "key.pub"])
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    context.args = ["supernode", "--insecure"]  # which would run what a server sends
    with pytest.raises(InvalidInput, match="sottovoce node start"):
        flower.flower(context)
    # A SuperLink is started in this process, with what this process has in its environment.
    from sottovoce.deploy.flower import superlink

    for variable in ("FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("FLWR_INTERNAL_GRPC_FLEET_API", "1")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    seen: list[Any] = []
    monkeypatch.setattr(superlink, "start", lambda arguments: seen.append((arguments, dict(os.environ))))
    context.args = ["superlink", "--insecure"]
    flower.flower(context)
    assert seen[0][0] == ["--insecure"]
    for variable in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        assert seen[0][1][variable] == "0"
    assert seen[0][1]["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert "FLWR_INTERNAL_GRPC_FLEET_API" not in seen[0][1]
