"""The one door from text: what is read, how, and what is refused with the text in the error."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import budget

from berth.errors import InvalidText
from berth.net import Address, Family, Range, parse_address, parse_block, parse_range
from berth.net.parse import EndsBeforeStart, FamiliesDiffer, TouchesMapped, is_address, parse_host


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("255.255.255.255", "255.255.255.255"),
        ("2001:DB8::5", "2001:db8::5"),
        ("2001:db8::0005", "2001:db8::5"),
        ("::", "::"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:102:304", "1.2.3.4"),
        ("64:ff9b::10.0.0.1", "64:ff9b::a00:1"),
    ],
)
def test_an_address_is_read_in_any_spelling_and_written_in_one(text: str, canonical: str) -> None:
    assert str(parse_address(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "10.0.0",
        "10.0.0.256",
        "10.0.0.010",
        "010.0.0.1",
        " 10.0.0.1",
        "10.0.0.1 ",
        "10.0.0.1\n",
        "10.0.0.1/32",
        "fe80::1%eth0",
        "10.0.0.1%eth0",
        "1:2:3:4:5:6:7:8:9",
        "::1::",
        "12345::",
        "１０.0.0.1",
        "0x0a000001",
        "167772161",
        "-1",
    ],
)
def test_what_is_no_address_is_refused_with_the_text_in_the_error(text: str) -> None:
    with pytest.raises(InvalidText) as error:
        parse_address(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("10.1.2.3", "10.1.2.3", "10.1.2.3"),
        ("10.0.0.9-10.0.0.14", "10.0.0.9", "10.0.0.14"),
        ("10.0.0.9-10.0.0.9", "10.0.0.9", "10.0.0.9"),
        ("10.0.0.0/24", "10.0.0.0", "10.0.0.255"),
        ("10.0.0.77/24", "10.0.0.0", "10.0.0.255"),
        ("0.0.0.0/0", "0.0.0.0", "255.255.255.255"),
        ("::ffff:10.0.0.0/104", "10.0.0.0", "10.255.255.255"),
        ("::ffff:10.0.0.5-::ffff:10.0.0.6", "10.0.0.5", "10.0.0.6"),
        ("fd00::1-fd00::ff", "fd00::1", "fd00::ff"),
        ("FD00::/120", "fd00::", "fd00::ff"),
        ("fd00::/08", "fd00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ],
)
def test_a_range_is_an_address_two_ends_or_a_cidr(text: str, first: str, last: str) -> None:
    ends = parse_address(first), parse_address(last)
    assert parse_range(text) == Range(ends[0].family, ends[0].value, ends[1].value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("10.3.0.0-10.2.3.4", EndsBeforeStart),
        ("10.0.0.1-fd00::5", FamiliesDiffer),
        ("::ffff:10.0.0.1-fd00::5", FamiliesDiffer),
        ("10.0.0.1 - 10.0.0.5", InvalidText),
        ("10.0.0.0-10.2.3.4-1.2.3.4", InvalidText),
        ("10.0.0.0/24-10.0.1.0/24", InvalidText),
        ("10.0.0.1-", InvalidText),
        ("-10.0.0.1", InvalidText),
        ("10.0.0.0/", InvalidText),
        ("10.0.0.0/33", InvalidText),
        ("fd00::/129", InvalidText),
        ("10.0.0.0/-1", InvalidText),
        ("10.0.0.0/+8", InvalidText),
        ("10.0.0.0/²", InvalidText),
        ("10.0.0.0/255.0.0.0", InvalidText),
        ("10.0.0.0/8/8", InvalidText),
        (" 10.0.0.0/24", InvalidText),
    ],
)
def test_what_is_no_range_is_refused_by_kind_with_the_text_in_the_error(
    text: str, error: type[InvalidText]
) -> None:
    with pytest.raises(InvalidText) as raised:
        parse_range(text)
    assert type(raised.value) is error
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.5/30", "10.0.0.4/30"),
        ("10.0.0.5", "10.0.0.5/32"),
        ("fd00::1", "fd00::1/128"),
        ("::ffff:10.0.0.8", "10.0.0.8/32"),
        ("::ffff:10.0.0.8/120", "10.0.0.0/24"),
        # an IPv6 block that merely begins among the IPv4-mapped addresses stays what it is
        ("::ffff:10.0.0.8/95", "::fffe:0:0/95"),
        ("::/0", "::/0"),
    ],
)
def test_a_block_loses_its_host_bits(text: str, canonical: str) -> None:
    assert str(parse_block(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "::/0",
        "::/64",
        "::/80",
        "::ffff:10.0.0.8/95",
        "::fffe:0:0/95",
        "::-1::",
        "::1-::1:0:0:0",
        "::fffe:ffff:ffff-::1:0:0:0",
    ],
)
def test_an_ipv6_range_with_ipv4_mapped_addresses_is_refused(text: str) -> None:
    """What is given out of it would be read back as IPv4; the error says what to leave out."""
    with pytest.raises(TouchesMapped, match=r"::ffff:0:0/96.*leave those out") as raised:
        parse_range(text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize("text", ["::-::fffe:ffff:ffff", "::1:0:0:0/80", "::/96", "::1:0:0:0-ffff::", "::1"])
def test_an_ipv6_range_beside_the_ipv4_mapped_addresses_is_as_good_as_any(text: str) -> None:
    read = parse_range(text)
    assert (read.family, parse_range(str(read))) == (Family.V6, read)


@pytest.mark.parametrize(
    "text", ["10.0.0.1/32", "10.0.0.1-10.0.0.2", "10.0.0.01", "fe80::1%eth0", "10.0.0.1\0", ""]
)
def test_a_host_is_one_address_and_nothing_else(text: str) -> None:
    assert not is_address(text)
    with pytest.raises(InvalidText, match="invalid address"):
        parse_host(text)
    assert (str(parse_host("::ffff:10.0.0.8")), is_address("::ffff:10.0.0.8")) == ("10.0.0.8/32", True)


def has_mapped(whole: Range) -> bool:
    return whole.family is Family.V6 and whole.first <= 0xFFFF_FFFF_FFFF and whole.last >= 0xFFFF_0000_0000


def values(family: Family) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(0, family.top), st.integers(0, 2**20))


FAMILIES = st.sampled_from(list(Family))


@budget(200)
@given(data=st.data(), family=FAMILIES)
def test_every_address_survives_the_way_to_text_and_back(data: st.DataObject, family: Family) -> None:
    address = Address(family, data.draw(values(family)))
    if address.value >> 32 != 0xFFFF:
        assert parse_address(str(address)) == address
        assert int(ip_address(str(address))) == address.value


@budget(200)
@given(data=st.data(), family=FAMILIES)
def test_every_block_is_what_the_standard_library_makes_of_its_text(
    data: st.DataObject, family: Family
) -> None:
    address = Address(family, data.draw(values(family)))
    text = f"{address}/{data.draw(st.integers(0, family.width))}"
    network = ip_network(text, strict=False)
    block = parse_block(text)
    if block.family == family:
        assert (block.first, block.last) == (int(network[0]), int(network[-1]))
        assert parse_block(str(block)) == block
        if has_mapped(block.range):
            with pytest.raises(TouchesMapped):
                parse_range(text)
        else:
            assert parse_range(text) == block.range


@budget(200)
@given(data=st.data(), family=FAMILIES)
def test_every_range_survives_the_way_to_text_and_back(data: st.DataObject, family: Family) -> None:
    first, last = sorted((data.draw(values(family)), data.draw(values(family))))
    whole = Range(family, first, last)
    if not has_mapped(whole):
        assert parse_range(str(whole)) == whole


@budget(300)
@given(st.text(max_size=40) | st.text("0123456789abcdef:./-%", max_size=40))
def test_any_other_text_is_refused_and_nothing_else_is_raised(text: str) -> None:
    for parse in (parse_address, parse_range, parse_block):
        with suppress(InvalidText):
            value = parse(text)
            assert parse(str(value)) == value
