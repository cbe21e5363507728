"""What a RUN gets of this machine: by variables and below /dev, so that nothing of it gets into an image."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.image_machine import apt_configuration, settings_from


def test_pips_own_settings_count_the_last_place_most(tmp_path: Path) -> None:
    certificates = tmp_path / "own.crt"
    certificates.touch()
    lines = "\n".join(
        [
            "global.index-url='https://one.example/simple'",
            "global.trusted-host='one.example'",
            "install.index-url='https://two.example/simple'",
            f":env:.cert={str(certificates)!r}",
            ":env:.disable-pip-version-check='1'",
            "freeze.timeout='10'",
        ]
    )
    settings = settings_from(lines, {"HTTPS_PROXY": "http://proxy.example:3128", "PATH": "/bin"})
    inside = "/dev/build/ca-certificates.crt"
    assert settings.env == {
        "HTTPS_PROXY": "http://proxy.example:3128",
        "PIP_INDEX_URL": "https://two.example/simple",
        "PIP_TRUSTED_HOST": "one.example",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_CERT": inside,
        "SSL_CERT_FILE": inside,
        "REQUESTS_CA_BUNDLE": inside,
    }
    assert settings.binds == (("/etc/resolv.conf", "/etc/resolv.conf"), (str(certificates), inside))


def test_packages_in_a_folder_of_this_machine_are_seen_too(tmp_path: Path) -> None:
    lines = f"global.find-links='\\n{tmp_path}\\nhttps://links.example/'\nglobal.cert='{tmp_path}/none'"
    settings = settings_from(lines, {})
    assert settings.env["PIP_FIND_LINKS"] == "/dev/build/links-0 https://links.example/"
    assert (str(tmp_path), "/dev/build/links-0") in settings.binds
    assert "PIP_CERT" not in settings.env


def test_apt_asks_this_machines_sources_through_its_proxy() -> None:
    said = 'Acquire "";\nAcquire::http::Proxy "http://proxy.example";\nAcquire::https::CaInfo "/x";\n'
    lines = apt_configuration(said).splitlines()
    assert 'Acquire::http::Proxy "http://proxy.example";' in lines
    assert 'Dir::Etc::sourcelist "/dev/build/sources.list";' in lines
    assert 'Dir::Etc::sourceparts "/dev/build/sources.list.d";' in lines
    assert 'Acquire::https::CaInfo "/dev/build/ca-certificates.crt";' in lines
    assert not [line for line in lines if '"/x"' in line]
