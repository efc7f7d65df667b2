"""Case 52: the catalogue serves descriptor and stub in all forms, and they agree."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.staticfiles import finders
from django.test import Client

from msgnode.stubs import catalogue, views
from msgnode.stubs.bundle import BundleError, bundled

DEFAULT = "/.well-known/protocolstub/default"
P2P = ["p2p-handler", "p2p-requester"]
FIELDS = {
    *("cguid", "type", "version", "objectName", "description", "language", "sourcePackageURL"),
    *("sourcePackage", "signature", "messageSchema", "messageSchemas", "configuration"),
    *("constraints", "hypertyType", "dataObjects", "interworking", "idpProxy"),
}


@pytest.fixture
def http() -> Client:
    return Client(enforce_csrf_checks=True)


def text(http: Client, path: str) -> str:
    answer = http.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def chosen_by(http: Client, constraints: Any) -> Any:
    return http.post(DEFAULT, json.dumps(constraints), content_type="application/json")


def test_case_52_the_descriptor_has_all_fields(http: Client) -> None:
    descriptor = http.get(DEFAULT).json()
    assert descriptor.keys() >= FIELDS
    assert descriptor["language"] == "JAVASCRIPT_ECMA6"
    assert descriptor["configuration"] == {"url": "ws://testserver/ws", "maxFrame": 1024 * 1024}


def test_case_52_all_forms_agree(http: Client) -> None:
    descriptor = http.get(DEFAULT).json()
    package = descriptor["sourcePackage"]
    assert package["encoding"] == "utf-8"
    assert text(http, f"{DEFAULT}/sourcePackage/sourceCode") == package["sourceCode"]
    assert http.get(f"{DEFAULT}/sourcePackage").json() == package
    assert text(http, f"{DEFAULT}.ps.js") == package["sourceCode"]
    assert http.get(f"{DEFAULT}.ps.json").json() == descriptor
    assert text(http, f"{DEFAULT}/version") == descriptor["version"]
    assert text(http, f"{DEFAULT}/cguid") == descriptor["cguid"]
    assert http.get("/.well-known/protostub/default").json() == descriptor
    assert http.get("/.well-known/protocolstub/localhost").json() == descriptor


def test_case_52_the_script_is_the_one_of_the_static_files(http: Client) -> None:
    source = catalogue.SERVED[0].path.read_bytes()
    assert catalogue.SERVED[0].path.match("msgnode/runtime/js/src/protostub.js")
    answer = http.get(f"{DEFAULT}.ps.js")
    assert answer.content == source
    assert answer["Content-Type"] == "text/javascript; charset=utf-8"
    package = http.get(f"{DEFAULT}/sourcePackage").json()
    hashed = base64.b64encode(hashlib.sha256(source).digest()).decode()
    assert package["integrity"] == f"sha256-{hashed}"


def test_the_version_changes_with_the_source() -> None:
    """Runtimes cache by cguid and version."""
    versions = {stub.version for stub in catalogue.SERVED}
    assert len(versions) == len(catalogue.SERVED)
    for stub in catalogue.SERVED:
        assert stub.version.endswith(hashlib.sha256(stub.path.read_bytes()).hexdigest()[:12])


@pytest.mark.parametrize(
    ("constraints", "language"),
    [
        ({"constraints": {"browser": True, "node": False, "mic": True}}, "JAVASCRIPT_ECMA6"),
        ({"browser": True, "https": True, "wss": True}, "JAVASCRIPT_ECMA6"),
        ({"node": True}, "JAVASCRIPT_ECMA6"),
        ({"constraints": {"python": True}}, "PYTHON"),
        ({"python": True, "ws": True}, "PYTHON"),
        ({}, "JAVASCRIPT_ECMA6"),
    ],
)
def test_case_52_constraints_select_a_stub(
    http: Client, constraints: dict[str, Any], language: str
) -> None:
    answer = chosen_by(http, constraints)
    assert answer.status_code == 200
    assert answer.json()["language"] == language


def test_who_has_no_websocket_is_given_the_stub_over_http(
    http: Client, settings: LazySettings
) -> None:
    without = {"browser": True, "ws": False, "wss": False}
    assert chosen_by(http, without).status_code == 404
    settings.DEVICE_HTTP = True
    descriptor = chosen_by(http, without).json()
    assert descriptor["configuration"]["url"] == "http://testserver/device/v1"
    assert descriptor["constraints"]["ws"] is False
    assert http.get("/.well-known/protocolstub/http").json() == descriptor
    assert http.get("/.well-known/protocolstub/").json() == ["default", "python", "http", *P2P]
    source = text(http, "/.well-known/protocolstub/http.ps.js")
    assert not re.search("^import ", source, re.MULTILINE)
    assert len(re.findall("^export default ", source, re.MULTILINE)) == 1
    assert chosen_by(http, {"python": True, "ws": False, "wss": False}).status_code == 404


@pytest.mark.parametrize("name", P2P)
def test_p2p_stubs_are_one_module_each_and_chosen_by_name_alone(http: Client, name: str) -> None:
    entry = f"/.well-known/protocolstub/{name}"
    descriptor = http.get(entry).json()
    assert descriptor.keys() >= FIELDS
    assert descriptor["constraints"] == {"windowSandbox": True, "webrtc": True}
    assert descriptor["configuration"] == {}  # no ICE server is built in
    source = text(http, f"{entry}.ps.js")
    assert source == descriptor["sourcePackage"]["sourceCode"]
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    assert descriptor["sourcePackage"]["integrity"] == f"sha256-{digest}"
    assert not re.search(r"^\s*import\b", source, re.MULTILINE) and "import(" not in source
    assert re.findall("^export .*$", source, re.MULTILINE) == [
        "export { P2PStub as default, activate };"
    ]
    window = {"windowSandbox": True, "browser": True}
    assert chosen_by(http, window).json()["objectName"] == "MessagingNodeProtoStub"
    assert not {each.name for each in catalogue.served("protocolstub")} & set(P2P)
    asked = http.post(entry, json.dumps(window), content_type="application/json")
    assert asked.json() == descriptor
    asked = http.post(entry, json.dumps({"python": True}), content_type="application/json")
    assert asked.status_code == 404


def test_modules_that_are_not_plain_are_not_joined(tmp_path: Path) -> None:
    one, other = tmp_path / "one.js", tmp_path / "other.js"
    other.write_text("export const a = 1;\nexport function b() {}\n")
    one.write_text('import { a as first, b } from "./other.js";\nexport class C {}\n')
    joined = bundled(one)
    assert "const { a: first, b } = $module0;" in joined and joined.endswith("export { C };\n")
    assert bundled(one) == joined
    (tmp_path / "third.js").write_text("export default class D {}\n")
    for odd in (
        'import * as all from "./other.js";',
        'import other from "./other.js";',
        'export { a } from "./other.js";',
        'import "./other.js";',
        'import { c } from "./one.js";',
        'import { c } from "./other.js";',
        'import { default as D } from "./third.js";',
    ):
        one.write_text(f"{odd}\nexport class C {{}}\n")
        with pytest.raises(BundleError):
            bundled(one)


def test_case_52_what_a_post_selects_can_be_fetched_by_its_name(http: Client) -> None:
    selected = chosen_by(http, {"python": True}).json()
    assert http.get("/.well-known/protocolstub/python").json() == selected
    assert text(http, "/.well-known/protocolstub/python.ps.py").startswith('"""The protostub')


@pytest.mark.parametrize(
    "constraints", [{"android": True}, {"browser": True, "ws": False, "wss": False}]
)
def test_case_52_constraints_that_no_stub_meets_are_404(
    http: Client, constraints: dict[str, Any]
) -> None:
    assert chosen_by(http, constraints).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/protocolstub/nobody",
        "/.well-known/protocolstub/nobody.ps.js",
        "/.well-known/protocolstub/python.ps.js",
        "/.well-known/protocolstub/default/nothing",
        "/.well-known/protocolstub/default/version/more",
        "/.well-known/protocolstub/default.ps.js/version",
        "/.well-known/protocolstub/../../settings/base.py",
        "/.well-known/hyperty/default",
    ],
)
def test_case_52_unknown_is_404_with_problem_details(http: Client, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code == 404
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json().keys() == {"type", "title", "status", "detail"}
    assert answer["Access-Control-Allow-Origin"] == "*"


def test_the_listing_of_a_type(http: Client) -> None:
    for path in ("/.well-known/protocolstub", "/.well-known/protocolstub/"):
        assert http.get(path).json() == ["default", "python", *P2P]
    assert http.get("/.well-known/protocolstub/all.json").json() == {
        "protocolstubs": ["default", "python", *P2P]
    }
    assert http.get("/.well-known/hyperty/").json() == []


def test_parts_are_asked_for_with_constraints_as_the_fields_catalogue_client_does(
    http: Client,
) -> None:
    """docs/reference/messages.md, section 6.6."""
    for constraints in ({"browser": True}, {"python": True}):
        descriptor = chosen_by(http, constraints).json()
        for part in ("version", "cguid", "sourcePackage", "sourcePackage/sourceCode"):
            answer = http.post(
                f"{DEFAULT}/{part}", json.dumps(constraints), content_type="application/json"
            )
            assert answer.status_code == 200, part
            value = descriptor
            for name in part.split("/"):
                value = value[name]
            assert value == (answer.json() if isinstance(value, dict) else answer.content.decode())
    for missing in ("nothing", "sourcePackage/nothing", "version/more"):
        answer = http.post(f"{DEFAULT}/{missing}", "{}", content_type="application/json")
        assert answer.status_code == 404
    answer = http.post(f"{DEFAULT}/version", '{"rust": true}', content_type="application/json")
    assert answer.status_code == 404


def test_an_identity_proxy_is_asked_for_with_constraints_too(http: Client) -> None:
    entry = "/.well-known/idp-proxy/default"
    for part, constraints, code in (
        ("", {"browser": True}, 200),
        ("/version", {}, 200),
        ("", {"python": True}, 404),
    ):
        answer = http.post(entry + part, json.dumps(constraints), content_type="application/json")
        assert answer.status_code == code
        if code == 200:
            assert answer.content == http.get(entry + part).content


@pytest.mark.parametrize("body", ["[]", "{", "7", "[" * 100_000, b"\xff\xfe"])
def test_constraints_that_are_no_object_are_400(http: Client, body: str | bytes) -> None:
    answer = http.post(DEFAULT, body, content_type="application/json")
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"


def test_other_origins_may_read_and_ask(http: Client) -> None:
    for method in (http.get, http.head, http.options):
        assert method(DEFAULT)["Access-Control-Allow-Origin"] == "*"
    asked = http.options(DEFAULT, headers={"Access-Control-Request-Method": "POST"})
    assert "POST" in asked["Access-Control-Allow-Methods"]


def test_a_copy_is_asked_for_anew_and_kept_if_it_is_still_good(http: Client) -> None:
    first = http.get(f"{DEFAULT}.ps.js")
    assert "no-cache" in first["Cache-Control"]
    again = http.get(f"{DEFAULT}.ps.js", headers={"If-None-Match": first["ETag"]})
    assert again.status_code == 304
    assert again["Access-Control-Allow-Origin"] == "*"
    assert http.get(DEFAULT)["ETag"] != first["ETag"]


def test_over_tls_the_configuration_names_a_secure_socket(http: Client) -> None:
    assert http.get(DEFAULT, secure=True).json()["configuration"]["url"] == "wss://testserver/ws"


def test_the_runtime_is_a_package_whose_digest_is_told(http: Client) -> None:
    assert http.get("/.well-known/runtime/").json()[0] == "js"
    told = http.get("/.well-known/runtime/js").json()
    answer = http.get(told["sourcePackageURL"])
    assert answer["Content-Type"] == "application/gzip"
    digest = base64.b64encode(hashlib.sha256(answer.content).digest()).decode()
    assert told["integrity"] == f"sha256-{digest}"
    assert views.javascript_package() == answer.content
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        names = archive.getnames()
    assert {"package/package.json", "package/README.md", "package/src/node.js"} <= set(names)
    assert not [name for name in names if "test" in name]
    assert http.get("/.well-known/runtime/nothing.tgz").status_code == 404


def test_the_runtime_is_served_as_modules() -> None:
    for name in ("index.js", "sandbox/inside.js", "policies/index.js", "index.d.ts"):
        assert finders.find(f"msgnode/runtime/{name}"), name
    assert finders.find("msgnode/runtime/bus.test.mjs") is None
