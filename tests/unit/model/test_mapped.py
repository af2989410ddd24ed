# SPDX-License-Identifier: Apache-2.0
"""How mapped ports are written."""

import pytest

from pilothouse.model import keys, mapped


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:6379=redis.default:6379", ("127.0.0.1", 6379, False, "redis", "default", 6379)),
        (
            "127.0.0.1:53=dns.kube-system:5353/udp",
            ("127.0.0.1", 53, True, "dns", "kube-system", 5353),
        ),
        ("[::1]:1=a.b:2", ("::1", 1, False, "a", "b", 2)),
    ],
)
def test_what_is_written_is_read_and_written_again(text: str, expected: tuple[object, ...]):
    """Address and port, the service, and whether it is UDP."""
    found = mapped.MappedPort.parse(text)
    address, port, udp, name, namespace, target = expected
    assert found == (address, port, udp, keys.ServiceKey(str(namespace), str(name)), target)
    assert str(found) == text


def test_tcp_may_be_said():
    """It is what is meant anyway."""
    said = mapped.MappedPort.parse("127.0.0.1:1=a.b:2/tcp")
    assert said == mapped.MappedPort.parse("127.0.0.1:1=a.b:2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be ADDRESS:PORT=NAME.NAMESPACE:PORT"),
        ("6379=redis.default:6379", "must be ADDRESS:PORT=NAME.NAMESPACE:PORT"),
        ("localhost:1=a.b:2", "must be ADDRESS:PORT=NAME.NAMESPACE:PORT"),
        ("127.0.0.1:1=a:2", "must be ADDRESS:PORT=NAME.NAMESPACE:PORT"),
        ("127.0.0.1:1=a.b.svc:2", "must be ADDRESS:PORT=NAME.NAMESPACE:PORT"),
        ("127.0.0.1:1=a.b:2/udp/tcp", "must be ADDRESS:PORT=NAME.NAMESPACE:PORT"),
        ("127.0.0.1:1=a.b:2/sctp", "must be ADDRESS:PORT=NAME.NAMESPACE:PORT"),
        ("127.0.0.256:1=a.b:2", "must begin with an IP address"),
        ("127.0.0.1:0=a.b:2", "must have ports from 1 to 65535"),
        ("127.0.0.1:1=a.b:65536", "must have ports from 1 to 65535"),
    ],
)
def test_what_is_none_is_told(text: str, words: str):
    """With the text itself, and what is expected."""
    with pytest.raises(ValueError, match=words) as caught:
        mapped.MappedPort.parse(text)
    assert repr(text) in str(caught.value)


def test_several_are_sorted_and_each_place_is_one_ports():
    """TCP and UDP are different places; the same one said twice is one."""
    texts = ("127.0.0.2:1=a.b:1", "127.0.0.1:1=a.b:1/udp", "127.0.0.1:1=a.b:2", "127.0.0.1:1=a.b:2")
    assert [str(one) for one in mapped.parse_all(texts)] == [texts[2], texts[1], texts[0]]
    with pytest.raises(ValueError, match="is mapped twice"):
        mapped.parse_all(("127.0.0.1:1=a.b:1", "127.0.0.1:1=c.d:1"))
