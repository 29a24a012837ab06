"""Check clusters with TLS: Dask's own settings name the certificates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cli_runners import check_rejected, run_cli
from tests.cluster.conftest import ClusterProcesses
from tests.cluster.edf_recordings import write_edf_recordings

SETTING_PREFIX = "DASK_DISTRIBUTED__COMM__"
ROLES = "SCHEDULER", "WORKER", "CLIENT"
DAY = timedelta(days=1)


def write_certificate(folder: Path, ends_in: timedelta = DAY) -> dict[str, str]:
    """Write a self-signed certificate; return Dask's settings for it as environment
    variables.
    """
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "night")])
    alternative_name = x509.SubjectAlternativeName(
        [x509.IPAddress(ip_address("127.0.0.1"))]
    )
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + ends_in)
        .add_extension(alternative_name, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            pem,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    settings = {f"{SETTING_PREFIX}TLS__CA_FILE": str(folder / "cert.pem")}
    for role in ROLES:
        settings[f"{SETTING_PREFIX}TLS__{role}__CERT"] = str(folder / "cert.pem")
        settings[f"{SETTING_PREFIX}TLS__{role}__KEY"] = str(folder / "key.pem")
    return settings


def test_an_encrypted_cluster(
    cluster_processes: ClusterProcesses, tmp_path: Path
) -> None:
    """An encrypted cluster takes its own certificate; else there is one line.

    That is so without a certificate, with a foreign one and with wrong settings.
    """
    own_settings = write_certificate(tmp_path / "ours")
    worker_settings = {**own_settings, f"{SETTING_PREFIX}REQUIRE_ENCRYPTION": "True"}
    scheduler = cluster_processes.scheduler("--protocol", "tls", **worker_settings)
    address = scheduler.address.replace("tcp:", "tls:")
    cluster_processes.worker(address, "--protocol", "tls", **worker_settings)
    (file,) = write_edf_recordings(tmp_path / "night", 1)
    args = "welch", file, "--device", "cpu", "--json", "-", "--dask", address
    run_result = run_cli(*args, **own_settings)
    assert run_result.code == 0, run_result.err
    assert run_result.document["files"][0]["path"] == file
    no_certificate = run_cli(*args)
    check_rejected(
        no_certificate,
        3,
        address,
        "have no client certificate",
        f"{SETTING_PREFIX}TLS__CA_FILE",
    )
    foreign_certificate = run_cli(*args, **write_certificate(tmp_path / "foreign"))
    check_rejected(
        foreign_certificate, 3, address, "a certificate was rejected", "verify failed"
    )
    missing_key = run_cli(
        *args, **{**own_settings, f"{SETTING_PREFIX}TLS__CLIENT__KEY": "/no/key.pem"}
    )
    check_rejected(missing_key, 3, address, "Dask's TLS settings cannot be used")
    old_protocol = run_cli(
        *args, **{**own_settings, f"{SETTING_PREFIX}TLS__MIN_VERSION": "0.9"}
    )
    check_rejected(
        old_protocol, 3, address, "Dask's TLS settings cannot be used", "0.9"
    )


def test_an_expired_certificate(
    cluster_processes: ClusterProcesses, tmp_path: Path
) -> None:
    expired_settings = write_certificate(tmp_path / "old", ends_in=-DAY)
    scheduler = cluster_processes.scheduler("--protocol", "tls", **expired_settings)
    address = scheduler.address.replace("tcp:", "tls:")
    (file,) = write_edf_recordings(tmp_path / "night", 1)
    run_result = run_cli(
        "welch", file, "--device", "cpu", "--dask", address, **expired_settings
    )
    check_rejected(run_result, 3, address, "a certificate was rejected", "expired")
