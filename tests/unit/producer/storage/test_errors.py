"""What users read of an object store's refusals; the texts are obstore's, of real servers."""

from __future__ import annotations

import pickle

import pytest

from producer.storage.errors import AccessDenied, StorageBusy, storage_error

PATH = "s3://lake/t/a"


def answer(status: int, code: str, message: str = "", *, kind: str = "GET") -> str:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return (
        f"Generic S3 error: Error performing {kind} http://127.0.0.1:9000/lake/t/a in 1ms - "
        f"Server returned non-2xx status code: {status} Reason: {body}"
    )


def silent(cause: str, server: str = "https://store.example:9000") -> str:
    return (
        f"Generic S3 error: Error performing GET {server}/lake/t/a in 1ms - HTTP error: error sending request\n{cause}"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (answer(403, "InvalidAccessKeyId"), "it does not know the access key, correct s3.access-key-id"),
        (answer(403, "SignatureDoesNotMatch"), "the secret does not belong to the access key"),
        (answer(400, "ExpiredToken"), "the credentials have expired"),
        (answer(403, "RequestTimeTooSkewed"), "this machine's clock differs from the store's"),
        (answer(403, "AccessDenied"), "grant the right to list here"),
        (
            "DeleteObjects request failed for key t/a: Access Denied (code: AccessDenied)",
            "grant the right to list here",
        ),
    ],
)
def test_access_that_is_denied(text: str, sentence: str) -> None:
    """Obstore has one class for all errors of requests that list or delete."""
    error = storage_error("LIST", PATH, Exception(text))
    assert isinstance(error, AccessDenied)
    assert sentence in str(error)
    assert str(error).startswith(f"{PATH}: the store denies access")
    assert not isinstance(error, StorageBusy)


@pytest.mark.parametrize(
    ("text", "sentence", "passing"),
    [
        (answer(404, "NoSuchBucket"), "there is no such bucket", False),
        ("Bulk delete request failed: The specified container does not exist. (code: 404)", "no such container", False),
        (
            answer(400, "AuthorizationHeaderMalformed", "the region &#34;eu&#34; is wrong; expecting &#34;us&#34;"),
            'the region is wrong: correct s3.region (the region "eu" is wrong; expecting "us")',
            False,
        ),
        (answer(503, "SlowDown", "Reduce your rate."), "the store answers 503 SlowDown (Reduce your rate)", True),
        (answer(500, "InternalError"), "the store answers 500 InternalError", True),
        (answer(429, "TooManyRequests"), "the store answers 429 TooManyRequests", True),
        (answer(400, "RequestTimeout"), "the store answers 400 RequestTimeout", True),
        (answer(400, "EntityTooLarge"), "the store answers 400 EntityTooLarge", False),
        (answer(501, "NotImplemented"), "the store answers 501 NotImplemented", False),
        (silent("ConnectionRefused"), "https://store.example:9000 does not answer: check that the storage runs", True),
        (silent("failed to lookup address"), "the name of https://store.example:9000 is not known", True),
        (silent("InvalidCertificate(UnknownIssuer)"), "the certificate of https://store.example:9000", False),
        (silent("InvalidContentType"), "https://store.example:9000 does not speak TLS", False),
        (silent("", "http://user:password@host:1"), "http://host:1 does not answer", True),
        ("connection reset by peer", "connection reset by peer", True),
    ],
)
def test_other_refusals(text: str, sentence: str, passing: bool) -> None:
    error = storage_error("GET", PATH, Exception(text))
    assert sentence in str(error)
    assert "\n" not in str(error)
    assert isinstance(error, StorageBusy) is passing
    assert not isinstance(error, PermissionError)


def test_a_head_request_gets_no_reason() -> None:
    """Credentials may have expired: they are renewed."""
    text = "Error performing HEAD http://h/lake/t/a in 1ms - Server returned non-2xx status code: 400 Bad Request: "
    assert isinstance(storage_error("HEAD", PATH, Exception(text)), AccessDenied)
    assert not isinstance(storage_error("GET", PATH, Exception(text)), AccessDenied)


def test_a_range_of_an_empty_object() -> None:
    assert storage_error("GET", PATH, Exception("Received non-partial response when range requested")).empty
    assert storage_error("GET", PATH, Exception(answer(416, "InvalidRange"))).empty
    assert not storage_error("GET", PATH, Exception(answer(404, "NoSuchBucket"))).empty


def test_an_error_travels_between_processes() -> None:
    error = storage_error("GET", PATH, Exception(answer(503, "SlowDown")))
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (StorageBusy, str(error))
