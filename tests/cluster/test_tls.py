"""Encryption is Dask's own: its settings name the certificates, for us too."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cluster.conftest import Started
from tests.cluster.night import night
from tests.command_line import check_refused, spawn

WHERE = "DASK_DISTRIBUTED__COMM__"
ROLES = "SCHEDULER", "WORKER", "CLIENT"
DAY = timedelta(days=1)


def certificate(folder: Path, ends_in: timedelta = DAY) -> dict[str, str]:
    """Dask's settings for a certificate that vouches for itself, as environment."""
    folder.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "night")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + ends_in)
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(signed.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            pem,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    named = {f"{WHERE}TLS__CA_FILE": str(folder / "cert.pem")}
    for role in ROLES:
        named[f"{WHERE}TLS__{role}__CERT"] = str(folder / "cert.pem")
        named[f"{WHERE}TLS__{role}__KEY"] = str(folder / "key.pem")
    return named


def test_an_encrypted_cluster(started: Started, tmp_path: Path) -> None:
    """An encrypted cluster takes its own certificate; else there is one line.

    That is so without a certificate, with a foreign one and with wrong settings.
    """
    ours = certificate(tmp_path / "ours")
    more = {**ours, f"{WHERE}REQUIRE_ENCRYPTION": "True"}
    scheduler = started.scheduler("--protocol", "tls", **more)
    address = scheduler.address.replace("tcp:", "tls:")
    started.worker(address, "--protocol", "tls", **more)
    (file,) = night(tmp_path / "night", 1)
    args = "welch", file, "--device", "cpu", "--json", "-", "--dask", address
    done = spawn(*args, **ours)
    assert done.code == 0, done.err
    assert done.record["files"][0]["path"] == file
    without = spawn(*args)
    check_refused(without, 3, address, "name no certificate", f"{WHERE}TLS__CA_FILE")
    foreign = spawn(*args, **certificate(tmp_path / "foreign"))
    check_refused(foreign, 3, address, "a certificate is refused", "verify failed")
    missing = spawn(*args, **{**ours, f"{WHERE}TLS__CLIENT__KEY": "/no/key.pem"})
    check_refused(missing, 3, address, "Dask's TLS settings cannot be used")
    old = spawn(*args, **{**ours, f"{WHERE}TLS__MIN_VERSION": "0.9"})
    check_refused(old, 3, address, "Dask's TLS settings cannot be used", "0.9")


def test_an_expired_certificate(started: Started, tmp_path: Path) -> None:
    old = certificate(tmp_path / "old", ends_in=-DAY)
    scheduler = started.scheduler("--protocol", "tls", **old)
    address = scheduler.address.replace("tcp:", "tls:")
    (file,) = night(tmp_path / "night", 1)
    said = spawn("welch", file, "--device", "cpu", "--dask", address, **old)
    check_refused(said, 3, address, "a certificate is refused", "expired")
