"""Tokens: their form, what each allows, and when it is refused, in which words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest, WrongSetting
from bitfusion_client.request.shares import parse_share
from bitfusion_pool.access import tokens as module
from bitfusion_pool.access.token_rules import (
    DAY_S,
    LONGEST_LIFETIME_S,
    IssuerBounds,
    TokenLimits,
    parse_count,
    parse_expiry,
    parse_name,
    parse_units,
)
from bitfusion_pool.access.token_text import PATTERN, is_token, new_token
from bitfusion_pool.access.tokens import KEPT_S, Grant, Tokens, WrongToken, WrongTokens, parse_tokens

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
LIMITS = TokenLimits(gpus=2, share=0.5, leases=4, waiting=1)
ASK = "ask the administrator of this pool for a new token"


def one(expires_at: float = NOW + DAY_S) -> tuple[Tokens, str]:
    return Tokens().with_new("ada", expires_at, LIMITS, NOW)


def test_tokens_have_a_form_that_scanners_find_and_are_never_alike() -> None:
    texts = {new_token() for _ in range(200)}
    assert len(texts) == 200
    assert all(PATTERN.fullmatch(text) and is_token(text) for text in texts)


def test_a_token_that_was_cut_or_mistyped_is_none() -> None:
    text = new_token()
    other = "0" if text[20] != "0" else "1"
    for wrong in (text[:-1], text + "0", text[:20] + other + text[21:], text.upper(), f" {text}"):
        assert not is_token(wrong)


def test_a_token_grants_its_limits_to_its_name() -> None:
    tokens, text = one()
    grant = tokens.check(text, NOW)
    assert isinstance(grant, Grant)
    assert (grant.name, grant.expires_at, grant.limits) == ("ada", NOW + DAY_S, LIMITS)
    assert tokens.allows(grant.token_id, NOW) == grant


@pytest.mark.parametrize(
    ("sent", "refusal"),
    [
        ("", WrongToken("token_unknown", "this pool is for clients with a token, and none was sent", ASK)),
        (new_token(), WrongToken("token_unknown", "this pool does not know the token", ASK)),
        (
            "bfpool_x",
            WrongToken(
                "token_unknown",
                "this is not a pool token, or only part of one",
                "copy the whole token, or use the client.yaml that came with it",
            ),
        ),
    ],
    ids=["none", "unknown", "damaged"],
)
def test_what_is_no_token_of_this_pool_is_refused(sent: str, refusal: WrongToken) -> None:
    assert one()[0].check(sent, NOW) == refusal


def test_a_token_ends_at_its_time_also_for_connections_that_are_open() -> None:
    tokens, text = one()
    token_id = tokens.all[0].token_id
    assert isinstance(tokens.check(text, NOW + DAY_S - 0.001), Grant)
    expected = WrongToken("token_expired", "Token expired at: 2027-01-16T08:00:00Z", ASK)
    assert tokens.check(text, NOW + DAY_S) == expected
    assert tokens.allows(token_id, NOW + DAY_S) == expected


def test_a_revoked_token_is_refused_and_others_are_not() -> None:
    tokens, text = one()
    tokens, other = tokens.with_new("bob", NOW + DAY_S, TokenLimits(), NOW)
    token_id = tokens.all[0].token_id
    tokens = tokens.without(tokens.all[0], NOW + 1)
    expected = WrongToken("token_revoked", "the token was revoked at: 2027-01-15T08:00:01Z", ASK)
    assert tokens.check(text, NOW + 2) == expected
    assert tokens.allows(token_id, NOW + 2) == expected
    assert isinstance(tokens.check(other, NOW + 2), Grant)


def test_a_token_that_is_gone_is_not_allowed_any_more() -> None:
    assert Tokens().allows("0" * 12, NOW) == WrongToken(
        "token_unknown", "this pool no longer knows the token", ASK
    )


def test_the_beginning_of_a_hash_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, _ = one()
    known = tokens.all[0].hash
    monkeypatch.setattr(module, "token_hash", lambda text: known[:12] + "0" * 52)
    assert isinstance(tokens.check(new_token(), NOW), WrongToken)


def test_a_name_or_an_id_finds_a_token() -> None:
    tokens, _ = one()
    (stored,) = tokens.all
    assert tokens.find("ada", NOW) is stored
    assert tokens.find(stored.token_id, NOW + 2 * DAY_S) is stored
    assert tokens.find("ada", NOW + 2 * DAY_S) is None  # only while it is in force


def test_old_tokens_are_forgotten_when_a_new_one_is_issued_and_their_number_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens, _ = one()
    later = NOW + DAY_S + KEPT_S
    assert len(tokens.with_new("bob", later + DAY_S, TokenLimits(), later - 1)[0].all) == 2
    assert len(tokens.with_new("bob", later + DAY_S, TokenLimits(), later)[0].all) == 1
    monkeypatch.setattr(module, "MAX_TOKENS", 1)
    with pytest.raises(ValueError, match="there are 1 tokens, which is the most a pool has"):
        tokens.with_new("bob", NOW + DAY_S, TokenLimits(), NOW)


def test_what_is_stored_holds_no_token_and_is_read_back() -> None:
    tokens, text = one()
    tokens = tokens.without(tokens.all[0], NOW + 1)
    tokens, other = tokens.with_new("bob", NOW + DAY_S, TokenLimits(), NOW)
    stored = tokens.to_text()
    assert parse_tokens(stored).all == tokens.all
    for secret in (text, other):
        assert secret[7:30] not in stored


def test_a_token_without_a_limit_in_units_is_stored_as_the_version_before_reads_it() -> None:
    before = {"gpus", "share", "leases", "waiting"}
    bounds = IssuerBounds(TokenLimits(gpus=2))
    for limits, may_issue in ((LIMITS, None), (TokenLimits(), bounds)):
        tokens, _ = Tokens().with_new("ada", NOW + DAY_S, limits, NOW, may_issue)
        (row,) = json.loads(tokens.to_text())["tokens"]
        assert set(row["limits"]) == before
        assert set((row.get("may_issue") or {"limits": before})["limits"]) == before
        assert parse_tokens(tokens.to_text()).all == tokens.all  # what that version has written


@pytest.mark.parametrize("units", [0, 1, 150])
def test_a_limit_in_units_is_kept_and_none_is_another_than_0(units: int) -> None:
    bounds = IssuerBounds(TokenLimits(units=units))
    tokens, _ = Tokens().with_new("ada", NOW + DAY_S, TokenLimits(units=units), NOW, bounds)
    assert parse_tokens(tokens.to_text()).all == tokens.all
    assert tokens.all[0].limits == TokenLimits(units=units) != TokenLimits()


def changed(**values: object) -> str:
    data = json.loads(one()[0].to_text())
    data["tokens"][0].update(values)
    return json.dumps(data)


TWICE = json.dumps({"format": 1, "tokens": json.loads(changed())["tokens"] * 2})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it does not have the format 1, which this program reads"),
        ('{"format": 2, "tokens": []}', "it does not have the format 1, which this program reads"),
        ('{"format": 1}', "it has no list of tokens"),
        ('{"format": 1, "tokens": [1]}', "its token number 1 is damaged"),
        (changed(hash="x" * 64), "its token number 1 is damaged"),
        (changed(hash="ab"), "its token number 1 is damaged"),
        (changed(name="a b"), "its token number 1 is damaged"),
        (changed(limits={"units": -1}), "its token number 1 is damaged"),
        (changed(limits={"units": "50"}), "its token number 1 is damaged"),
        (changed(expires_at="never"), "its token number 1 is damaged"),
        (changed(expires_at=1e300), "its token number 1 is damaged"),
        (changed(revoked_at=True), "its token number 1 is damaged"),
        (changed(limits={"gpus": "all"}), "its token number 1 is damaged"),
        (changed(limits={"share": 2}), "its token number 1 is damaged"),
        (changed(limits={"nodes": 2}), "its token number 1 is damaged"),
        (changed(issuer="cluster"), "its token number 1 is damaged"),
        (changed(issuer="cluster", name="cluster/a/b"), "its token number 1 is damaged"),
        (changed(issuer="other", name="cluster/ada"), "its token number 1 is damaged"),
        (changed(name="cluster/ada"), "its token number 1 is damaged"),
        (changed(may_issue=1), "its token number 1 is damaged"),
        (changed(may_issue={"limits": {}, "names": 0}), "its token number 1 is damaged"),
        (changed(may_issue={"limits": {}, "longest_s": -1}), "its token number 1 is damaged"),
        (changed(may_issue={"limits": {"gpus": 0}}), "its token number 1 is damaged"),
        (changed(more=1), "its token number 1 is damaged"),
        (TWICE, "it has the same token twice"),
    ],
    ids=lambda value: "damaged",  # the texts differ from process to process
)
def test_a_damaged_list_is_refused_as_a_whole(text: str, why: str) -> None:
    with pytest.raises(WrongTokens) as error:
        parse_tokens(text)
    assert str(error.value) == why


@given(st.text(max_size=200))
def test_any_text_that_a_client_sends_is_refused_or_granted(text: str) -> None:
    assert isinstance(one()[0].check(text, NOW), WrongToken)


@pytest.mark.parametrize(
    ("text", "at"),
    [("12h", NOW + 43200), ("90d", NOW + 90 * DAY_S), ("2027-03-31", 1_806_451_200.0)],
)
def test_an_expiry_is_a_span_or_a_date(text: str, at: float) -> None:
    assert parse_expiry(text, NOW) == at


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", "must be hours or days such as 12h or 90d, or a date such as 2027-03-31"),
        ("1y", "must be hours or days such as 12h or 90d, or a date such as 2027-03-31"),
        ("2027-02-30", "must be hours or days such as 12h or 90d, or a date such as 2027-03-31"),
        ("0d", "must be in the future"),
        ("2027-01-15", "must be in the future"),
        (f"{LONGEST_LIFETIME_S // DAY_S + 1}d", "a token lasts at most 730 days"),
        ("999999d", "a token lasts at most 730 days"),
    ],
)
def test_a_wrong_expiry_is_refused_in_words(text: str, allowed: str) -> None:
    with pytest.raises(WrongSetting) as error:
        parse_expiry(text, NOW)
    assert str(error.value) == f'wrong setting --expires="{text}": {allowed}'


@pytest.mark.parametrize("name", ["", "a b", "-ada", "ä", "a" * 64, "a/b", "a\n", "../x"])
def test_a_name_is_one_word_that_can_be_shown_anywhere(name: str) -> None:
    with pytest.raises(WrongSetting, match="must be at most 63 letters, digits and"):
        parse_name(name)
    assert parse_name("ada@example.org") == "ada@example.org"


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "x", "100001", "9" * 50, "１"])
def test_a_limit_that_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(WrongSetting, match="must be a whole number from 1 to 100000"):
        parse_count("--gpus", text)
    assert parse_count("--gpus", "100000") == 100_000


@pytest.mark.parametrize("text", ["", "-1", "1.5", "5k", "10000001", "٣", "1" * 30])
def test_units_that_are_no_whole_number_are_refused(text: str) -> None:
    with pytest.raises(
        WrongSetting, match="must be a whole number from 0 to 10000000; 100 units are one GPU"
    ):
        parse_units("--units", text)
    assert [parse_units("--units", good) for good in ("0", "150", "10000000")] == [0, 150, 10_000_000]


def test_a_share_is_a_fraction() -> None:
    assert parse_share("0.25", "--share") == 0.25
    with pytest.raises(InvalidRequest, match=r"write --share 0\.5"):
        parse_share("50%", "--share")


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (TokenLimits(), "no limits"),
        (LIMITS, "2 GPUs, 50 % of each, 4 leases, 1 waiting"),
        (TokenLimits(share=0.125), "12.5 % of each"),
        (TokenLimits(units=150), "150 units"),
        (TokenLimits(gpus=2, units=0), "2 GPUs, 0 units"),
    ],
)
def test_limits_are_told(limits: TokenLimits, told: str) -> None:
    assert limits.describe() == told
