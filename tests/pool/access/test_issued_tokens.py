"""What an issuer may do with the tokens of a pool, as a table: within its bounds, below its own name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bitfusion_pool.access import issued_tokens as module
from bitfusion_pool.access.issued_tokens import (
    KEPT_S,
    MOST_SECRETS,
    NotIssued,
    Wanted,
    issue,
    issued_by,
    revoke,
)
from bitfusion_pool.access.token_rules import DAY_S, IssuerBounds, TokenLimits
from bitfusion_pool.access.tokens import Grant, Tokens, WrongToken, parse_tokens

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
BOUNDS = IssuerBounds(TokenLimits(gpus=2, share=0.5, leases=4, units=300), names=2, longest_s=3 * DAY_S)
ANOTHER = "ask the administrator of this pool for an issuer with"


def issued(tokens: Tokens, wanted: Wanted, now: float = NOW, issuer: str = "cluster") -> tuple[Tokens, str]:
    changed, text, stored = issue(tokens, issuer, BOUNDS, wanted, now)
    assert changed.all[-1] is stored
    return changed, text


def with_issuer() -> Tokens:
    return Tokens().with_new("cluster", NOW + 300 * DAY_S, TokenLimits(), NOW, BOUNDS)[0]


def test_a_token_is_below_the_issuers_name_with_its_bounds_where_nothing_is_said() -> None:
    tokens, text = issued(with_issuer(), Wanted("team-a"))
    grant = tokens.check(text, NOW)
    assert isinstance(grant, Grant)
    assert (grant.name, grant.limits, grant.expires_at) == (
        "cluster/team-a",
        TokenLimits(2, 0.5, 4, units=300),
        NOW + 3 * DAY_S,
    )
    assert grant.may_issue is None
    assert isinstance(tokens.check(text, NOW + 3 * DAY_S), WrongToken)


def test_what_is_stored_is_read_back_and_says_nothing_new_where_there_is_no_issuer() -> None:
    tokens, _ = issued(with_issuer(), Wanted("team-a"))
    assert parse_tokens(tokens.to_text()).all == tokens.all
    ordinary = json.loads(Tokens().with_new("ada", NOW + DAY_S, TokenLimits(), NOW)[0].to_text())
    assert set(ordinary["tokens"][0]) == {"hash", "name", "created_at", "expires_at", "limits", "revoked_at"}


@pytest.mark.parametrize(
    ("wanted", "message", "next_step"),
    [
        (
            Wanted("b", limits=TokenLimits(gpus=3)),
            "this issuer gives at most gpus 2, and 3 were asked for",
            f"ask for less, or {ANOTHER} --may-issue-gpus",
        ),
        (
            Wanted("b", limits=TokenLimits(share=0.51)),
            "this issuer gives at most share 0.5, and 0.51 were asked for",
            f"ask for less, or {ANOTHER} --may-issue-share",
        ),
        (Wanted("b", limits=TokenLimits(gpus=-1)), "a limit is above 0, and gpus is -1", "ask for more"),
        (Wanted("b", limits=TokenLimits(units=-2)), "a limit is at least 0, and units is -2", "ask for more"),
        (
            Wanted("b", limits=TokenLimits(units=301)),
            "this issuer gives at most units 300, and 301 were asked for",
            f"ask for less, or {ANOTHER} --may-issue-units",
        ),
        (
            Wanted("b", life_s=4 * DAY_S),
            "this issuer's tokens last at most 3 days, and 4 days were asked for",
            f"ask for a shorter life, or {ANOTHER} --may-issue-for",
        ),
        (
            Wanted("b", life_s=-1),
            "this issuer's tokens last at most 3 days, and 0 days were asked for",
            f"ask for a shorter life, or {ANOTHER} --may-issue-for",
        ),
        (Wanted("a"), "cluster/a has a token until 2027-01-18T08:00:00Z", "renew it, or revoke it first"),
    ],
)
def test_what_is_beyond_the_bounds_is_refused(wanted: Wanted, message: str, next_step: str) -> None:
    tokens, _ = issued(with_issuer(), Wanted("a"))
    with pytest.raises(NotIssued) as caught:
        issued(tokens, wanted)
    assert (caught.value.message, caught.value.next_step) == (message, next_step)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (TokenLimits(gpus=3, units=500), TokenLimits(2, 0.5, 4, units=300)),
        (TokenLimits(units=50), TokenLimits(2, 0.5, 4, units=50)),
        (TokenLimits(units=0, share=1.0), TokenLimits(2, 0.5, 4, units=0)),
    ],
)
def test_limits_above_the_issuers_are_lowered_where_that_is_asked_for(
    asked: TokenLimits, given: TokenLimits
) -> None:
    _, _, stored = issue(with_issuer(), "cluster", BOUNDS, Wanted("b", limits=asked, lower=True), NOW)
    assert stored.limits == given


@pytest.mark.parametrize("name", ["", "../b", "other/b", "cluster/b", "/b", "b/", "b\n", "x" * 64, "-b", "ä"])
def test_a_name_is_never_another_issuers_nor_an_administrators(name: str) -> None:
    with pytest.raises(NotIssued, match="must be at most 63 letters, digits"):
        issued(with_issuer(), Wanted(name))
    with pytest.raises(NotIssued, match="must be at most 63 letters, digits"):
        revoke(with_issuer(), "cluster", name, NOW)


def test_names_are_bounded_and_one_that_was_revoked_makes_room() -> None:
    tokens, _ = issued(with_issuer(), Wanted("a"))
    tokens, _ = issued(tokens, Wanted("b"))
    with pytest.raises(NotIssued, match="this issuer may have 2 names, and as many have a token"):
        issued(tokens, Wanted("c"))
    issued(tokens, Wanted("c"), issuer="other")
    tokens, ended = revoke(tokens, "cluster", "a", NOW)
    assert [one.name for one in ended] == ["cluster/a"]
    issued(tokens, Wanted("c"))


def test_a_renewal_leaves_the_token_that_is_in_use_and_its_new_limits_hold_for_both() -> None:
    tokens, first = issued(with_issuer(), Wanted("a"))
    tokens, second = issued(tokens, Wanted("a", limits=TokenLimits(gpus=1), renew=True), NOW + 2 * DAY_S)
    for text in (first, second):
        grant = tokens.check(text, NOW + 2 * DAY_S)
        assert isinstance(grant, Grant)
        assert grant.limits.gpus == 1
    assert isinstance(tokens.check(first, NOW + 3 * DAY_S), WrongToken)
    assert isinstance(tokens.check(second, NOW + 3 * DAY_S), Grant)


def test_secrets_of_a_name_are_bounded_and_the_one_that_is_in_use_is_kept() -> None:
    tokens, used = issued(with_issuer(), Wanted("a"))
    keep = tokens.all[-1].token_id
    lost = []
    for number in range(5):  # each was lost on its way
        tokens, text = issued(tokens, Wanted("a", renew=True, keep=keep), NOW + number)
        lost.append(text)
    assert isinstance(tokens.check(used, NOW + 5), Grant)
    assert [isinstance(tokens.check(text, NOW + 5), Grant) for text in lost] == [False] * 3 + [True] * 2
    assert len(issued_by(tokens, "cluster", NOW + 5)) == MOST_SECRETS


def test_ended_tokens_are_forgotten_so_that_an_issuer_cannot_fill_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = with_issuer()
    for number in range(20):
        tokens, _ = issued(tokens, Wanted(f"n{number}"), NOW + number)
        tokens, _ = revoke(tokens, "cluster", f"n{number}", NOW + number)
    assert len([one for one in tokens.all if one.issuer]) <= BOUNDS.names + 1
    tokens, _ = issued(tokens, Wanted("last"), NOW + 20 + KEPT_S)
    assert [one.name for one in tokens.all] == ["cluster", "cluster/last"]
    monkeypatch.setattr(module, "MAX_TOKENS", module.KEPT_FOR_ADMINISTRATORS + 2)
    with pytest.raises(NotIssued, match="this pool has too many tokens"):
        issued(tokens, Wanted("more"), NOW + 20 + KEPT_S)


def test_an_issuer_sees_and_ends_its_own_only() -> None:
    tokens, _ = issued(with_issuer(), Wanted("a"))
    tokens, _ = issued(tokens, Wanted("a"), issuer="other")
    tokens, ada = tokens.with_new("ada", NOW + DAY_S, TokenLimits(), NOW)
    assert [one.name for one in issued_by(tokens, "cluster", NOW)] == ["cluster/a"]
    changed, ended = revoke(tokens, "cluster", "a", NOW)
    assert [one.name for one in ended] == ["cluster/a"]
    assert [one.name for one in issued_by(changed, "other", NOW)] == ["other/a"]
    assert isinstance(changed.check(ada, NOW), Grant)
    assert revoke(changed, "cluster", "a", NOW)[1] == []


def test_a_bound_that_is_not_set_is_as_much_as_the_pool_has() -> None:
    free = replace(BOUNDS, limits=TokenLimits())
    tokens, _, stored = issue(with_issuer(), "cluster", free, Wanted("a", limits=TokenLimits(gpus=7)), NOW)
    assert stored.limits == TokenLimits(gpus=7)
    with pytest.raises(NotIssued, match=r"a share is at most 1, and 1\.5 was asked for"):
        issue(tokens, "cluster", free, Wanted("b", limits=TokenLimits(share=1.5)), NOW)
